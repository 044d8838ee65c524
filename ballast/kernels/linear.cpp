// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/gemm.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& weight,
                        const Parameter& bias) {
    context->save_for_backward({x, weight.value});
    context->saved_data["sums"] = gradient_sums({weight, bias});
    context->saved_data["unwritten"] = unwritten_sums({weight});
    return multiply_transposed(x, weight.value, bias.value);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor &x = saved[0], &weight = saved[1];
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    add_weight_gradients({sums[0], unwritten[0]}, sums[1], dy[0], x);
    return {context->needs_input_grad(0) ? multiply_weight(dy[0], weight) : Tensor(), {}, {}};
  }
};

struct AddBiasFunction : torch::autograd::Function<AddBiasFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& bias) {
    context->saved_data["sums"] = gradient_sums({bias});
    return x + bias.value;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    if (sum.defined()) add_rows(sum, dy[0]);
    return {dy[0], {}};
  }
};

struct SumBiasGradientFunction : torch::autograd::Function<SumBiasGradientFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& bias) {
    context->saved_data["sums"] = gradient_sums({bias});
    return x.view_as(x);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return AddBiasFunction::backward(context, dy);
  }
};

struct FeedForwardFunction : torch::autograd::Function<FeedForwardFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const FeedForwardWeights& w) {
    const Inner inner = activated_product(x, w.up.value, w.up_bias.value, w.activation);
    context->save_for_backward({x, inner.before, inner.active, w.up.value, w.down.value});
    context->saved_data["sums"] = gradient_sums({w.up, w.up_bias, w.down, w.down_bias});
    context->saved_data["unwritten"] = unwritten_sums({w.up, w.down});
    context->saved_data["activation"] = static_cast<int64_t>(w.activation);
    return multiply_transposed(inner.active, w.down.value, w.down_bias.value);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const Tensor &x = saved[0], &up = saved[3], &down = saved[4];
    const Inner inner{saved[1], saved[2]};
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    add_weight_gradients({sums[2], unwritten[1]}, sums[3], dy[0], inner.active);
    const Tensor dinner = inner_gradient(dy[0], down, inner, activation, sums[1]);
    add_weight_gradients({sums[0], unwritten[0]}, {}, dinner, x);
    return {context->needs_input_grad(0) ? multiply_weight(dinner, up) : Tensor(), {}};
  }
};

void check_linear(const char* what, const Tensor& x, const Tensor& weight) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), what,
              ": want x [T, I] and weight [O, I], got ", x.sizes(), " and ", weight.sizes());
}

}  // namespace

Tensor linear(const Tensor& x, const Parameter& weight, const Parameter& bias) {
  check_linear("linear", x, weight.value);
  if (!at::GradMode::is_enabled()) return multiply_transposed(x, weight.value, bias.value);
  return LinearFunction::apply(x, weight, bias);
}

Tensor add_bias(const Tensor& x, const Parameter& bias) {
  TORCH_CHECK(x.dim() == 2 && bias.value.dim() == 1 && x.size(1) == bias.value.size(0),
              "add_bias: want x [T, O] and bias [O], got ", x.sizes(), " and ", bias.value.sizes());
  return AddBiasFunction::apply(x, bias);
}

Tensor sum_bias_gradient(const Tensor& x, const Parameter& bias) {
  if (!at::GradMode::is_enabled() || !bias.gradient.defined()) return x;
  return SumBiasGradientFunction::apply(x, bias);
}

Inner activated_product(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                        Activation activation) {
  if (activation == Activation::kRelu)
    return {{}, multiply_transposed(x, up, up_bias, Activation::kRelu)};
  const Tensor before = multiply_transposed(x, up, up_bias);
  return {before, activate(before, activation)};
}

Tensor inner_gradient(const Tensor& dy, const Tensor& down, const Inner& inner,
                      Activation activation, const Tensor& up_bias_sum) {
  if (activation == Activation::kRelu)
    return multiply_weight_masked(dy, down, inner.active, up_bias_sum);
  const Tensor gradient = activate_backward(multiply_weight(dy, down), inner.before, activation);
  if (up_bias_sum.defined()) add_rows(up_bias_sum, gradient);
  return gradient;
}

Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights) {
  check_linear("feed_forward", x, weights.up.value);
  if (!at::GradMode::is_enabled()) {
    const Inner inner =
        activated_product(x, weights.up.value, weights.up_bias.value, weights.activation);
    return multiply_transposed(inner.active, weights.down.value, weights.down_bias.value);
  }
  return FeedForwardFunction::apply(x, weights);
}

}  // namespace ballast::kernels
