// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/gemm.h"

namespace ballast {

using at::Tensor;

// Not differentiable through autograd: it returns its own gradient.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("softmax_cross_entropy_(Tensor(a!) logits, Tensor targets, float scale) -> Tensor");
}

Tensor softmax_cross_entropy_(Tensor& logits, const Tensor& targets, double scale) {
  static const auto op =
      find_op<Tensor(Tensor&, const Tensor&, double)>("ballast::softmax_cross_entropy_");
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && targets.dim() == 1 &&
                  targets.size(0) == logits.size(0) && targets.scalar_type() == at::kLong &&
                  targets.is_contiguous(),
              "softmax_cross_entropy_: want contiguous logits [C, V] and int64 targets [C], got ",
              logits.sizes(), " and ", targets.sizes());
  return op.call(logits, targets, scale);
}

int64_t rows_of_logits(at::Device device, int64_t vocabulary) {
  const int64_t elements = device.is_cpu() ? int64_t{1} << 19 : int64_t{1} << 28;
  return std::clamp<int64_t>(elements / vocabulary / 64 * 64, 64, 8192);
}

namespace {

void check_inputs(const Tensor& hidden, const Tensor& embedding, const Tensor& targets) {
  TORCH_CHECK(hidden.dim() == 2 && embedding.dim() == 2 && hidden.size(1) == embedding.size(1) &&
                  targets.dim() == 1 && targets.size(0) == hidden.size(0),
              "next_token_losses: want hidden [T, D], embedding [V, D], targets [T], got ",
              hidden.sizes(), ", ", embedding.sizes(), ", ", targets.sizes());
}

}  // namespace

Tensor next_token_losses(const Tensor& hidden, const Tensor& embedding, const Tensor& targets) {
  const at::NoGradGuard no_grad;
  check_inputs(hidden, embedding, targets);
  const int64_t chunk = rows_of_logits(hidden.device(), embedding.size(0));
  std::vector<Tensor> losses;
  for (int64_t first = 0; first < hidden.size(0); first += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - first);
    Tensor logits = multiply_transposed(hidden.narrow(0, first, count), embedding, {});  // [C, V]
    losses.push_back(softmax_cross_entropy_(logits, targets.narrow(0, first, count), 0.0));
  }
  return at::cat(losses);
}

LossAndGradient next_token_losses_and_gradient(const Tensor& hidden_on_graph,
                                               const Parameter& embedding, const Tensor& targets,
                                               double scale) {
  const at::NoGradGuard no_grad;
  const Tensor hidden = hidden_on_graph.detach();
  check_inputs(hidden, embedding.value, targets);
  const int64_t chunk = rows_of_logits(hidden.device(), embedding.value.size(0));
  Tensor gradient = at::empty_like(hidden);
  std::vector<Tensor> losses;
  for (int64_t first = 0; first < hidden.size(0); first += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - first);
    const Tensor rows = hidden.narrow(0, first, count);
    Tensor logits = multiply_transposed(rows, embedding.value, {});  // [C, V]
    losses.push_back(softmax_cross_entropy_(logits, targets.narrow(0, first, count), scale));
    gradient.narrow(0, first, count).copy_(multiply_weight(logits, embedding.value));
    if (embedding.gradient.defined()) add_outer_products(embedding.gradient, logits, rows);
  }
  return {at::cat(losses), gradient};
}

}  // namespace ballast
