// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gate_logits.h"

#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::ScalarType logit_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct GateLogitsFunction : torch::autograd::Function<GateLogitsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& weight) {
    context->save_for_backward({x, weight.value});
    context->saved_data["sums"] = gradient_sums({weight});
    const auto type = logit_type(x);
    return at::mm(x.to(type), weight.value.to(type).t());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    const Tensor &x = saved[0], &weight = saved[1];
    const auto type = logit_type(x);
    if (sum.defined()) sum.add_(at::mm(dy[0].t(), x.to(type)));
    return {at::mm(dy[0], weight.to(type)).to(x.scalar_type()), {}};
  }
};

}  // namespace

Tensor gate_logits(const Tensor& x, const Parameter& weight) {
  TORCH_CHECK(x.dim() == 2 && weight.value.dim() == 2 && x.size(1) == weight.value.size(1),
              "gate_logits: want x [T, D] and weight [E, D], got ", x.sizes(), " and ",
              weight.value.sizes());
  return GateLogitsFunction::apply(x, weight);
}

}  // namespace ballast
