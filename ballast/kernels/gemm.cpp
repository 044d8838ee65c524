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
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/gemm_paths.h"

namespace ballast {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "multiply_fused(Tensor(a!) y, Tensor left, Tensor right, int form, int end, "
      "Tensor(b!)? bias, Tensor(c!)? mask) -> bool");
}

bool multiply_fused(const at::Tensor& y, const FusedProduct& product) {
  const auto& [left, right, form, end, bias, mask] = product;
  // libtorch's own products are what autograd knows.
  if (at::GradMode::is_enabled() && (left.requires_grad() || right.requires_grad())) return false;
  using Optional = const std::optional<at::Tensor>&;
  static const auto op =
      find_op<bool(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                   Optional, Optional)>("ballast::multiply_fused");
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x) : std::nullopt;
  };
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(y, left, right, static_cast<int64_t>(form), static_cast<int64_t>(end),
                 optional(bias), optional(mask));
}

namespace {

using NoScalars = c10::List<std::optional<at::Scalar>>;
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::string_view,
                                   c10::List<std::optional<at::Scalar>>,
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
at::Tensor rows_like(const at::Tensor& x, int64_t columns, const at::TensorOptions& options) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = columns;
  return at::empty(shape, options);
}
at::Tensor rows_like(const at::Tensor& x, int64_t columns) {
  return rows_like(x, columns, x.options());
}

bool suits_fusion(const at::Tensor& x) { return x.is_cuda() && x.scalar_type() == at::kBFloat16; }

// multiply_weight_masked where the device's library has it, at least without the sum.
bool multiply_masked(const at::Tensor& product, const at::Tensor& y, const at::Tensor& weight,
                     const at::Tensor& mask, const at::Tensor& bias_sum) {
  FusedProduct fused{y, weight, ProductForm::kPlain, ProductEnd::kMasked, {}, mask};
  if (!bias_sum.defined()) return multiply_fused(product, fused);
  fused.bias = at::empty(bias_sum.sizes(), y.options());
  if (multiply_fused(product, fused)) {
    bias_sum.add_(fused.bias);
    return true;
  }
  fused.bias.reset();
  if (!multiply_fused(product, fused)) return false;
  add_rows(bias_sum, product);
  return true;
}

}  // namespace

at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation) {
  const bool relu = activation == Activation::kRelu;
  if (suits_onednn(x)) {
    const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
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

ActiveRows multiply_transposed_relu(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias) {
  if (suits_fusion(x)) {
    const ActiveRows active{rows_like(x, weight.size(-2)), rows_like(x, mask_bytes(weight.size(-2)),
                                                                     x.options().dtype(at::kByte))};
    if (multiply_fused(active.values, {x, weight, ProductForm::kRightTransposed, ProductEnd::kRelu,
                                       bias, active.mask}))
      return active;
  }
  return {multiply_transposed(x, weight, bias, Activation::kRelu), {}};
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
                                  const ActiveRows& active, const at::Tensor& bias_sum) {
  if (active.mask.defined()) {
    at::Tensor product = rows_like(y, weight.size(-1));
    if (multiply_masked(product, y, weight, active.mask, bias_sum)) return product;
  }
  at::Tensor product = multiply_weight(y, weight);
  at::threshold_backward_out(product, product, active.values, 0);
  if (bias_sum.defined()) add_rows(bias_sum, product);
  return product;
}

void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  if (suits_fusion(sum) && multiply_fused(sum, {y, x, ProductForm::kAddedLeftTransposed})) return;
  y.dim() == 2 ? sum.addmm_(y.t(), x) : sum.baddbmm_(transposed(y), x);
}

void add_rows(const at::Tensor& sum, const at::Tensor& y) { sum.add_(y.sum(-2)); }

void add_weight_gradients(const at::Tensor& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x) {
  if (weight_sum.defined() && bias_sum.defined() && suits_fusion(weight_sum)) {
    const at::Tensor rows = at::empty(bias_sum.sizes(), dy.options());
    if (multiply_fused(weight_sum, {dy, x, ProductForm::kAddedLeftTransposed,
                                    ProductEnd::kLeftRowsAdded, rows})) {
      bias_sum.add_(rows);
      return;
    }
  }
  if (weight_sum.defined()) add_outer_products(weight_sum, dy, x);
  if (bias_sum.defined()) add_rows(bias_sum, dy);
}

}  // namespace ballast
