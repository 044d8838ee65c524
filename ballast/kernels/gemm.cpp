// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gemm.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>

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
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && onednn_linear().has_value();
}

}  // namespace

at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation) {
  const bool relu = activation == Activation::kRelu;
  if (suits_onednn(x)) {
    const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
    return onednn_linear()->call(x, weight, optional_bias, relu ? "relu" : "none", NoScalars(), "");
  }
  at::Tensor y = bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
  return relu ? y.relu_() : y;
}

at::Tensor multiply_weight(const at::Tensor& y, const at::Tensor& weight) {
  if (suits_onednn(y))
    return onednn_linear()->call(y, weight.t(), std::nullopt, "none", NoScalars(), "");
  return at::mm(y, weight);
}

void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  sum.addmm_(y.t(), x);
}

void add_rows(const at::Tensor& sum, const at::Tensor& y) { sum.add_(y.sum(0)); }

void add_weight_gradients(const at::Tensor& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x) {
  if (weight_sum.defined()) add_outer_products(weight_sum, dy, x);
  if (bias_sum.defined()) add_rows(bias_sum, dy);
}

}  // namespace ballast
