// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/expert_gate_paths.h"
#include "ballast/kernels/expert_rows.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::ScalarType gate_type(const Tensor& h) {
  return h.scalar_type() == at::kBFloat16 ? at::kFloat : h.scalar_type();
}

bool has_row_loops(const Tensor& h) {
  return h.is_cpu() && (h.scalar_type() == at::kFloat || h.scalar_type() == at::kDouble);
}

// Group by group, with libtorch's operations.
GatedRows gated_residual_grouped(const Tensor& h, const Tensor& stack,
                                 at::IntArrayRef rows_of_expert, const Tensor& embeddings) {
  const auto type = gate_type(h);
  GatedRows result{at::empty_like(h), at::empty({h.size(0), 1}, h.options().dtype(type))};
  for (const ExpertGroup& group : expert_groups(rows_of_expert, h.size(0))) {
    const Tensor x = group.rows_of(h).to(type), gate = group.rows_of(result.gates);
    const Tensor w = group.slices_of(embeddings).to(type).unsqueeze(1);  // [B, 1, D]
    gate.copy_((x * w).sum({2}, true).sigmoid_());
    group.rows_of(result.y).copy_(at::lerp(x, group.rows_of(stack).to(type), gate));
  }
  return result;
}

GateGradients gated_residual_backward_grouped(const GateInputs& in, const Tensor& dy) {
  const auto type = gate_type(in.h);
  GateGradients result{at::empty_like(in.h), at::empty_like(in.h)};
  for (const ExpertGroup& group : expert_groups(in.rows_of_expert, in.h.size(0))) {
    const Tensor x = group.rows_of(in.h).to(type), gate = group.rows_of(in.gates),
                 dy_here = group.rows_of(dy).to(type);
    const Tensor w = group.slices_of(in.embeddings).to(type).unsqueeze(1);  // [B, 1, D]
    const Tensor dscore = ((group.rows_of(in.stack).to(type) - x) * dy_here)
                              .sum({2}, true)
                              .mul_(gate)
                              .mul_(1 - gate);  // [B, C, 1]
    group.rows_of(result.dstack).copy_(gate * dy_here);
    group.rows_of(result.dh).copy_(((1 - gate) * dy_here).addcmul_(dscore, w));
    if (in.embedding_sums.defined()) {
      group.slices_of(in.embedding_sums).add_((x * dscore).sum({1}));
    }
  }
  return result;
}

struct GatedResidualFunction : torch::autograd::Function<GatedResidualFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& stack,
                        at::IntArrayRef rows_of_expert, const Parameter& embeddings) {
    const auto compute = has_row_loops(h) ? gated_residual_cpu : gated_residual_grouped;
    const auto [y, gates] = compute(h, stack, rows_of_expert, embeddings.value);
    context->save_for_backward({h, stack, gates, embeddings.value});
    context->saved_data["sums"] = gradient_sums({embeddings});
    context->saved_data["rows"] = rows_of_expert.vec();
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto rows_of_expert = context->saved_data["rows"].toIntVector();
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    const Tensor& h = saved[0];
    const auto compute =
        has_row_loops(h) ? gated_residual_backward_cpu : gated_residual_backward_grouped;
    const auto [dh, dstack] = compute({.h = h,
                                       .stack = saved[1],
                                       .gates = saved[2],
                                       .embeddings = saved[3],
                                       .embedding_sums = sum,
                                       .rows_of_expert = rows_of_expert},
                                      gradients[0].contiguous());
    return {dh, dstack, {}, {}};
  }
};

}  // namespace

Tensor gated_residual(const Tensor& h, const Tensor& stack, at::IntArrayRef rows_of_expert,
                      const Parameter& expert_embeddings) {
  const Tensor& embeddings = expert_embeddings.value;
  TORCH_CHECK(
      h.dim() == 2 && stack.sizes() == h.sizes() && embeddings.dim() == 2 &&
          embeddings.size(1) == h.size(1) &&
          embeddings.size(0) == static_cast<int64_t>(rows_of_expert.size()),
      "gated_residual: want h and stack [N, D], rows_of_expert [E] and embeddings [E, D], got ",
      h.sizes(), ", ", stack.sizes(), ", [", rows_of_expert.size(), "] and ", embeddings.sizes());
  expert_groups(rows_of_expert, h.size(0));  // refuses what does not fit
  return GatedResidualFunction::apply(h.contiguous(), stack.contiguous(), rows_of_expert,
                                      expert_embeddings);
}

}  // namespace ballast
