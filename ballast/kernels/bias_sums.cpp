// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/bias_sums.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/library.h>

#include "ballast/kernels/bias_sums_paths.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("mask_and_add_rows_(Tensor(a!) y, Tensor? active, Tensor(b!)? sum) -> ()");
}

void plain_mask_and_add_rows(const Tensor& y, const OptionalTensor& active,
                             const OptionalTensor& sum) {
  Tensor masked = y;
  if (active) at::threshold_backward_out(masked, y, *active, 0);
  if (sum) sum->add_(masked.sum(-2));
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("mask_and_add_rows_", plain_mask_and_add_rows);
}

namespace {

void mask_and_add_rows(const Tensor& y, const OptionalTensor& active, const OptionalTensor& sum) {
  TORCH_CHECK(y.dim() == 2 || y.dim() == 3, "bias sums: want y [T, O] or [E, T, O], got ",
              y.sizes());
  TORCH_CHECK(!active || active->sizes() == y.sizes(), "take_back_relu: want active ", y.sizes(),
              " as the gradient, got ", active ? active->sizes() : at::IntArrayRef());
  std::vector<int64_t> shape = y.sizes().vec();
  shape.erase(shape.end() - 2);
  TORCH_CHECK(!sum || sum->sizes() == shape, "bias sums: want a sum ", at::IntArrayRef(shape),
              " for rows ", y.sizes(), ", got ", sum ? sum->sizes() : at::IntArrayRef());
  TORCH_CHECK(!at::GradMode::is_enabled() || !y.requires_grad(),
              "bias sums have no gradient, and their rows require one");
  using Optional = const OptionalTensor&;
  static const auto op =
      find_op<void(const Tensor&, Optional, Optional)>("ballast::mask_and_add_rows_");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.call(y, active, sum);
}

}  // namespace

void add_rows(const Tensor& sum, const Tensor& y) { mask_and_add_rows(y, std::nullopt, sum); }

void take_back_relu(const Tensor& dactive, const Tensor& active, const Tensor& sum) {
  mask_and_add_rows(dactive, active, if_defined(sum));
}

}  // namespace ballast::kernels
