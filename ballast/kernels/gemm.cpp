// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gemm.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>

namespace ballast {
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

}  // namespace

at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation) {
  const bool relu = activation == Activation::kRelu;
  if (suits_onednn(x)) {
    const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
    return onednn_linear()->call(x, weight, optional_bias, relu ? "relu" : "none", NoScalars(), "");
  }
  at::Tensor y = multiply(x, transposed(weight), bias);
  return relu ? y.relu_() : y;
}

ActiveRows multiply_transposed_relu(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias) {
  return {multiply_transposed(x, weight, bias, Activation::kRelu), {}};
}

at::Tensor multiply_weight(const at::Tensor& y, const at::Tensor& weight) {
  if (suits_onednn(y))
    return onednn_linear()->call(y, weight.t(), std::nullopt, "none", NoScalars(), "");
  return multiply(y, weight, {});
}

void multiply_weight_out(const at::Tensor& product, const at::Tensor& y, const at::Tensor& weight) {
  if (suits_onednn(y)) {
    product.copy_(multiply_weight(y, weight));
    return;
  }
  at::Tensor out = product;
  y.dim() == 2 ? at::mm_out(out, y, weight) : at::bmm_out(out, y, weight);
}

at::Tensor multiply_weight_masked(const at::Tensor& y, const at::Tensor& weight,
                                  const ActiveRows& active, const at::Tensor& bias_sum) {
  at::Tensor product = multiply_weight(y, weight);
  at::threshold_backward_out(product, product, active.values, 0);
  if (bias_sum.defined()) add_rows(bias_sum, product);
  return product;
}

void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  y.dim() == 2 ? sum.addmm_(y.t(), x) : sum.baddbmm_(transposed(y), x);
}

void add_rows(const at::Tensor& sum, const at::Tensor& y) { sum.add_(y.sum(-2)); }

void add_weight_gradients(const at::Tensor& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x) {
  if (weight_sum.defined()) add_outer_products(weight_sum, dy, x);
  if (bias_sum.defined()) add_rows(bias_sum, dy);
}

}  // namespace ballast
