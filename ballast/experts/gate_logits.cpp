// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_logits.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/rows_alone.h"

namespace ballast::experts {

// Of a GPU alone. x [T, E] fp32 -> [T, 2 E] bf16; sum [E, D] bf16 or fp32, terms [2 E, D] fp32; all
// contiguous.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("in_two_parts(Tensor x) -> Tensor");
  library.def("add_both_(Tensor(a!) sum, Tensor terms) -> ()");
}

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::ScalarType logit_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Tensor cores multiply bf16 exactly and sum in fp32: the same as products of fp32, much faster.
bool suits_tensor_cores(const Tensor& x, const Tensor& weight) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kBFloat16 &&
         x.numel() > 0;
}

// x to 16 bits of precision as two numbers of 8 bits beside each other, whose sum it is.
Tensor in_two_parts(const Tensor& x) {
  static const auto op = kernels::find_op<Tensor(const Tensor&)>("ballast::in_two_parts");
  return op.call(x.contiguous());
}

// sum [E, D] += both of terms [2 E, D].
void add_both(const Tensor& sum, const Tensor& terms) {
  static const auto op = kernels::find_op<void(const Tensor&, const Tensor&)>("ballast::add_both_");
  op.call(sum, terms);
}

struct GateLogitsFunction : torch::autograd::Function<GateLogitsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const kernels::Parameter& weight) {
    context->save_for_backward({x, weight.value});
    context->saved_data["sums"] = kernels::gradient_sums({weight});
    if (suits_tensor_cores(x, weight.value)) return at::mm(x, weight.value.t(), at::kFloat);
    const auto type = logit_type(x);
    return at::mm(x.to(type), weight.value.to(type).t());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    const Tensor &x = saved[0], &weight = saved[1];
    if (suits_tensor_cores(x, weight)) {
      const Tensor parts = in_two_parts(dy[0]);  // [T, 2 E]
      if (sum.defined()) add_both(sum, at::mm(parts.t(), x, at::kFloat));
      return {at::mm(parts, at::cat({weight, weight})), {}};
    }
    const auto type = logit_type(x);
    if (sum.defined()) sum.add_(at::mm(dy[0].t(), x.to(type)));
    return {at::mm(dy[0], weight.to(type)).to(x.scalar_type()), {}};
  }
};

}  // namespace

Tensor gate_logits(const Tensor& x, const kernels::Parameter& weight) {
  TORCH_CHECK(x.dim() == 2 && weight.value.dim() == 2 && x.size(1) == weight.value.size(1),
              "gate_logits: want x [T, D] and weight [E, D], got ", x.sizes(), " and ",
              weight.value.sizes());
  if (kernels::RowsAlone::hold_for(x)) return kernels::multiply_transposed(x, weight.value, {});
  return GateLogitsFunction::apply(x, weight);
}

}  // namespace ballast::experts
