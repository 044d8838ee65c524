// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/layer_norm.h"

#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr double kEpsilon = 1e-5;

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& weight,
                        const Parameter& bias) {
    const auto [y, mean, inverse_deviation] =
        at::native_layer_norm(x, {x.size(-1)}, weight.value, bias.value, kEpsilon);
    context->save_for_backward({x, mean, inverse_deviation, weight.value, bias.value});
    context->saved_data["sums"] = gradient_sums({weight, bias});
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor x = saved[0], weight_sum = sums[0], bias_sum = sums[1];
    const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        dy[0], x, {x.size(-1)}, saved[1], saved[2], saved[3], saved[4],
        {context->needs_input_grad(0), weight_sum.defined(), bias_sum.defined()});
    if (weight_sum.defined()) weight_sum.add_(dweight);
    if (bias_sum.defined()) bias_sum.add_(dbias);
    return {dx, {}, {}};
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Parameter& weight, const Parameter& bias) {
  TORCH_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(0),
              "layer_norm: want x [T, D] and weight [D], got ", x.sizes(), " and ",
              weight.value.sizes());
  return LayerNormFunction::apply(x, weight, bias);
}

}  // namespace ballast
