// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gemm.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <torch/library.h>

#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/gemm_paths.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/kernels/rows_alone_paths.h"

namespace ballast::kernels {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "multiply_fused(Tensor(a!) y, Tensor left, Tensor right, int form, int end, "
      "Tensor? bias) -> bool");
}

bool multiply_fused(const at::Tensor& y, const FusedProduct& product) {
  const auto& [left, right, form, end, bias] = product;
  // libtorch's own products are what autograd knows.
  if (at::GradMode::is_enabled() && (left.requires_grad() || right.requires_grad())) return false;
  static const auto op =
      find_op<bool(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                   const OptionalTensor&)>("ballast::multiply_fused");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(y, left, right, static_cast<int64_t>(form), static_cast<int64_t>(end),
                 if_defined(bias));
}

namespace {

using NoScalars = c10::List<std::optional<at::Scalar>>;
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                                   c10::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<c10::string_view>);

// oneDNN's matrix product with a fused activation, where this libtorch has it.
std::optional<c10::TypedOperatorHandle<LinearPointwise>> onednn_linear() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<LinearPointwise>> {
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found || !at::hasMKLDNN()) return std::nullopt;
    return found->typed<LinearPointwise>();
  }();
  return handle;
}

bool suits_onednn(const at::Tensor& x) {
  return x.device().is_cpu() && x.dim() == 2 && x.scalar_type() == at::kFloat &&
         onednn_linear().has_value();
}

at::Tensor transposed(const at::Tensor& x) { return x.transpose(-2, -1); }

// a b + bias.  a [T, K], b [K, N], bias [N] or undefined; or stacks of these
at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (a.dim() == 2) return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
  return bias.defined() ? at::baddbmm(bias.unsqueeze(1), a, b) : at::bmm(a, b);
}

// Where to write a product with as many rows as x.
at::Tensor rows_like(const at::Tensor& x, int64_t columns) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = columns;
  return at::empty(shape, x.options());
}

bool suits_fusion(const at::Tensor& x) { return x.is_cuda() && x.scalar_type() == at::kBFloat16; }

}  // namespace

at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation) {
  if (RowsAlone::hold_for(x)) return multiply_rows_alone(x, weight, bias, activation);
  const bool relu = activation == Activation::kRelu;
  if (suits_onednn(x)) {
    const auto optional_bias = if_defined(bias);
    return onednn_linear()->call(x, weight, optional_bias, relu ? "relu" : "none", NoScalars(), "");
  }
  if (suits_fusion(x)) {
    at::Tensor y = rows_like(x, weight.size(-2));
    const ProductEnd end = relu ? ProductEnd::kRelu : ProductEnd::kBias;
    if (multiply_fused(y, {x, weight, ProductForm::kRightTransposed, end, bias})) return y;
  }
  at::Tensor y = multiply(x, transposed(weight), bias);
  return relu ? y.relu_() : y;
}

at::Tensor multiply_weight(const at::Tensor& y, const at::Tensor& weight) {
  if (suits_onednn(y))
    return onednn_linear()->call(y, weight.t(), std::nullopt, "none", NoScalars(), "");
  if (suits_fusion(y)) {
    at::Tensor product = rows_like(y, weight.size(-1));
    if (multiply_fused(product, {y, weight})) return product;
  }
  return multiply(y, weight, {});
}

void multiply_weight_out(const at::Tensor& product, const at::Tensor& y, const at::Tensor& weight) {
  if (suits_onednn(y)) {
    product.copy_(multiply_weight(y, weight));
    return;
  }
  if (suits_fusion(y) && multiply_fused(product, {y, weight})) return;
  at::Tensor out = product;
  y.dim() == 2 ? at::mm_out(out, y, weight) : at::bmm_out(out, y, weight);
}

at::Tensor multiply_weight_masked(const at::Tensor& y, const at::Tensor& weight,
                                  const at::Tensor& active, const at::Tensor& bias_sum) {
  at::Tensor product = multiply_weight(y, weight);
  take_back_relu(product, active, bias_sum);
  return product;
}

void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  if (suits_fusion(sum) && multiply_fused(sum, {y, x, ProductForm::kAddedLeftTransposed})) return;
  y.dim() == 2 ? sum.addmm_(y.t(), x) : sum.baddbmm_(transposed(y), x);
}

void write_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  if (suits_fusion(sum) && multiply_fused(sum, {y, x, ProductForm::kLeftTransposed})) return;
  at::Tensor out = sum;
  y.dim() == 2 ? at::mm_out(out, y.t(), x) : at::bmm_out(out, transposed(y), x);
}

void sum_outer_products(const GradientSum& sum, const at::Tensor& y, const at::Tensor& x) {
  sum.begins() ? write_outer_products(sum.values, y, x) : add_outer_products(sum.values, y, x);
}

void add_weight_gradients(const GradientSum& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x) {
  if (weight_sum.values.defined()) sum_outer_products(weight_sum, dy, x);
  if (bias_sum.defined()) add_rows(bias_sum, dy);
}

}  // namespace ballast::kernels
