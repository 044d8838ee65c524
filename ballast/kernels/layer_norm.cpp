// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/layer_norm.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

auto norm_rows(const Tensor& x, const Tensor& change, const Parameter& weight,
               const Parameter& bias, const NormForm& form) {
  static const auto op = find_op<decltype(plain_norm_rows)>("ballast::norm_rows");
  return op.call(x, if_defined(change), weight.value, if_defined(bias.value), form.takes_mean(),
                 form.epsilon);
}

void save(AutogradContext* context, const tensor_list& saved, const Parameter& weight,
          const Parameter& bias, const NormForm& form, const Parameter& change_bias = {}) {
  context->save_for_backward(saved);
  context->saved_data["takes_mean"] = form.takes_mean();
  context->saved_data["sums"] = gradient_sums({weight, bias, change_bias});
}

// By what was normed and saved, from dnormed and dsum, which may be undefined.
Tensor norm_gradient(AutogradContext* context, const Tensor& dnormed, const Tensor& dsum) {
  const auto sums = context->saved_data["sums"].toTensorList();
  if (!dnormed.defined()) {
    const Tensor change_sum = sums[2];
    if (dsum.defined() && change_sum.defined()) add_rows(change_sum, dsum);
    return dsum;
  }
  static const auto op = find_op<decltype(plain_norm_rows_backward)>("ballast::norm_rows_backward");
  const auto saved = context->get_saved_variables();
  return op.call(dnormed, if_defined(dsum), saved[0], saved[1], saved[2], saved[3],
                 if_defined(sums[0]), if_defined(sums[1]),
                 context->saved_data["takes_mean"].toBool(), if_defined(sums[2]));
}

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& weight,
                        const Parameter& bias, const NormForm& form) {
    const auto [none, normed, mean, inverse] = norm_rows(x, {}, weight, bias, form);
    save(context, {x, mean, inverse, weight.value}, weight, bias, form);
    return normed;
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return {norm_gradient(context, dy[0], {}), {}, {}, {}};
  }
};

struct AddLayerNormFunction : torch::autograd::Function<AddLayerNormFunction> {
  static tensor_list forward(AutogradContext* context, const Tensor& x, const Tensor& change,
                             const Parameter& weight, const Parameter& bias, const NormForm& form,
                             const Parameter& change_bias) {
    const auto [sum, normed, mean, inverse] = norm_rows(x, change, weight, bias, form);
    save(context, {sum, mean, inverse, weight.value}, weight, bias, form, change_bias);
    context->set_materialize_grads(false);
    return {sum, normed};
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const Tensor d = norm_gradient(context, dy[1], dy[0]);
    return {d, d, {}, {}, {}, {}};
  }
};

void check(const char* name, const Tensor& x, const Parameter& weight) {
  TORCH_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(0), name,
              ": want x [T, D] and weight [D], got ", x.sizes(), " and ", weight.value.sizes());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "norm_rows(Tensor x, Tensor? change, Tensor weight, Tensor? bias, bool takes_mean, float "
      "epsilon) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "norm_rows_backward(Tensor dnormed, Tensor? dsum, Tensor sum, Tensor mean, Tensor "
      "inverse_deviation, Tensor weight, Tensor(a!)? weight_sum, Tensor(b!)? bias_sum, bool "
      "takes_mean, Tensor(c!)? change_sum) -> Tensor");
}

Tensor layer_norm(const Tensor& x, const Parameter& weight, const Parameter& bias,
                  const NormForm& form) {
  check("layer_norm", x, weight);
  if (!at::GradMode::is_enabled()) return std::get<1>(norm_rows(x, {}, weight, bias, form));
  return LayerNormFunction::apply(x, weight, bias, form);
}

NormedSum add_layer_norm(const Tensor& x, const Tensor& change, const Parameter& weight,
                         const Parameter& bias, const NormForm& form,
                         const Parameter& change_bias) {
  check("add_layer_norm", x, weight);
  TORCH_CHECK(change.sizes() == x.sizes() && change.scalar_type() == x.scalar_type(),
              "add_layer_norm: want a change like x ", x.sizes(), ", got ", change.sizes());
  if (!at::GradMode::is_enabled()) {
    const auto [sum, normed, mean, inverse] = norm_rows(x, change, weight, bias, form);
    return {sum, normed};
  }
  const tensor_list results =
      AddLayerNormFunction::apply(x, change, weight, bias, form, change_bias);
  return {results[0], results[1]};
}

}  // namespace ballast::kernels
