// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_mlp.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/spread_rows.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Plain loops over rows, a piece of an expert's rows for each thread.
bool has_row_loops(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}
bool has_row_loops(const Tensor& x, const ExpertWeights& w) {
  return has_row_loops(x) && w.form.is_papers() && w.up_bias.value.defined() &&
         w.down_bias.value.defined();
}

ExpertStacks values_of(const ExpertWeights& w) {
  return {w.norm.value, w.norm_bias.value, w.up.value, w.up_bias.value,
          w.down.value, w.down_bias.value, w.form};
}

struct ExpertFeedForwardFunction : torch::autograd::Function<ExpertFeedForwardFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const ExpertRows& rows,
                        const ExpertWeights& w, MatrixGradients gradients) {
    const ExpertStacks weights = values_of(w);
    const auto counts = rows.counts_on_host();
    KeptForBackward kept;
    const bool loops = has_row_loops(x, w);
    const auto compute = loops ? expert_feed_forward_cpu : expert_feed_forward_batched;
    const Tensor y = compute(x, counts, weights, kept);
    tensor_list saved{x, weights.norm, weights.up, weights.down};
    saved.insert(saved.end(), kept.tensors.begin(), kept.tensors.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["sums"] =
        kernels::gradient_sums({w.norm, w.norm_bias, w.up, w.up_bias, w.down, w.down_bias});
    context->saved_data["rows"] = counts;
    context->saved_data["tasks"] = kept.tasks;
    context->saved_data["writes"] = gradients == MatrixGradients::kWritten;
    context->saved_data["loops"] = loops;
    context->saved_data["form"] =
        std::vector<int64_t>{static_cast<int64_t>(w.form.activation), w.form.norms,
                             static_cast<int64_t>(w.form.norm.kind)};
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorVector();
    const auto counts = context->saved_data["rows"].toIntVector();
    const auto form = context->saved_data["form"].toIntVector();
    // Biases and the norm's epsilon have no say.
    const ExpertStacks weights{saved[1],
                               {},
                               saved[2],
                               {},
                               saved[3],
                               {},
                               {.activation = static_cast<kernels::Activation>(form[0]),
                                .norms = form[1] != 0,
                                .norm = {static_cast<kernels::NormKind>(form[2])}}};
    const ExpertStacks gradient_sums{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
    const KeptForBackward kept{{saved.begin() + 4, saved.end()},
                               context->saved_data["tasks"].toInt()};
    if (context->saved_data["writes"].toBool()) {
      for (const Tensor& sum : {gradient_sums.up, gradient_sums.down}) {
        if (sum.defined()) sum.zero_();
      }
    }
    const Tensor &x = saved[0], dy = gradients[0].contiguous();
    const auto compute = context->saved_data["loops"].toBool()
                             ? expert_feed_forward_backward_cpu
                             : expert_feed_forward_backward_batched;
    return {compute(dy, x, counts, weights, gradient_sums, kept), {}, {}, {}};
  }
};

void check_rows(const Tensor& x, const ExpertRows& rows) {
  if (rows.ends.defined()) {
    TORCH_CHECK(rows.ends.dim() == 1 && rows.ends.scalar_type() == at::kInt &&
                    rows.ends.is_contiguous() && rows.ends.device() == x.device(),
                "expert_feed_forward: want int32 ends [E] on ", x.device(), ", got ",
                rows.ends.scalar_type(), " ", rows.ends.sizes(), " on ", rows.ends.device());
  }
  if (!rows.ends.defined() || !rows.counts.empty())
    expert_groups(rows.counts, x.size(0));  // refuses what does not fit
}

}  // namespace

void check_expert_weights(int64_t width, int64_t experts, const ExpertWeights& w) {
  const Tensor& up = w.up.value;
  TORCH_CHECK(up.dim() == 3 && up.size(0) == experts && up.size(2) == width, "want up [", experts,
              ", F, ", width, "] of ", experts, " experts for rows of ", width, ", got ",
              up.sizes());
  const int64_t inner = up.size(1), active = inner / kernels::columns_taken(w.form.activation);
  const auto check = [](const char* what, const Tensor& weight, at::IntArrayRef shape) {
    TORCH_CHECK(weight.sizes() == shape, "want ", what, " ", shape, " of experts, got ",
                weight.sizes());
  };
  const auto check_if_there = [&](const char* what, const Tensor& weight, at::IntArrayRef shape) {
    if (weight.defined()) check(what, weight, shape);
  };
  if (w.form.norms) check("norm", w.norm.value, {experts, width});
  if (w.form.norms && w.form.norm.takes_mean())
    check("norm_bias", w.norm_bias.value, {experts, width});
  check_if_there("up_bias", w.up_bias.value, {experts, inner});
  check("down", w.down.value, {experts, width, active});
  check_if_there("down_bias", w.down_bias.value, {experts, width});
}

Tensor expert_feed_forward(const Tensor& x, const ExpertRows& rows, const ExpertWeights& weights,
                           MatrixGradients gradients) {
  TORCH_CHECK(x.dim() == 2, "expert_feed_forward: want x [N, D], got ", x.sizes());
  check_expert_weights(x.size(1), rows.experts(), weights);
  check_rows(x, rows);
  const RoutedRows routed{x.contiguous(), rows};
  const std::vector<ExpertWeights> sublayers{weights};
  const ExpertBlock block{routed, sublayers, {}, gradients};
  if (suits_fused_block(block)) return expert_block_fused(block);
  if (!at::GradMode::is_enabled() && has_row_loops(x, weights)) {
    KeptForBackward none{.has_backward = false};
    return expert_feed_forward_cpu(routed.rows, rows.counts_on_host(), values_of(weights), none);
  }
  return ExpertFeedForwardFunction::apply(x.contiguous(), rows, weights, gradients);
}

namespace {

struct GatedResidualFunction : torch::autograd::Function<GatedResidualFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& stack,
                        at::IntArrayRef rows_of_expert, const kernels::Parameter& embeddings) {
    const auto compute = has_row_loops(h) ? gated_residual_cpu : gated_residual_batched;
    const auto [y, gates] = compute(h, stack, rows_of_expert, embeddings.value);
    context->save_for_backward({h, stack, gates, embeddings.value});
    context->saved_data["sums"] = kernels::gradient_sums({embeddings});
    context->saved_data["rows"] = rows_of_expert.vec();
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto rows_of_expert = context->saved_data["rows"].toIntVector();
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    const Tensor& h = saved[0];
    const auto compute =
        has_row_loops(h) ? gated_residual_backward_cpu : gated_residual_backward_batched;
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
                      const kernels::Parameter& expert_embeddings) {
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

namespace {

Tensor composed(const ExpertBlock& block) {
  const auto& [h, rows_of_expert, row_of_slot, slot_of_row] = block.routed;
  const bool in_slots = !row_of_slot.defined();
  const Tensor rows = in_slots ? h : permute_rows(h, row_of_slot, slot_of_row);
  Tensor stacked = rows;
  for (const ExpertWeights& weights : block.sublayers)
    stacked = expert_feed_forward(stacked, rows_of_expert, weights, block.gradients);
  const Tensor gated = gated_residual(rows, stacked, rows_of_expert.counts, block.embeddings);
  return in_slots ? gated : permute_rows(gated, slot_of_row, row_of_slot);
}

}  // namespace

Tensor gated_experts(const RoutedRows& given, const std::vector<ExpertWeights>& sublayers,
                     const kernels::Parameter& embeddings, MatrixGradients gradients) {
  TORCH_CHECK(given.rows.dim() == 2, "gated_experts: want h [N, D], got ", given.rows.sizes());
  RoutedRows routed = given;
  routed.rows = given.rows.contiguous();
  const auto& [h, rows_of_expert, row_of_slot, slot_of_row] = routed;
  const int64_t experts = rows_of_expert.experts();
  for (const ExpertWeights& weights : sublayers) check_expert_weights(h.size(1), experts, weights);
  TORCH_CHECK(embeddings.value.sizes() == at::IntArrayRef({experts, h.size(1)}),
              "gated_experts: want embeddings [", experts, ", ", h.size(1), "], got ",
              embeddings.value.sizes());
  if (row_of_slot.defined()) {
    TORCH_CHECK(row_of_slot.dim() == 1 && row_of_slot.scalar_type() == at::kLong &&
                    row_of_slot.device() == h.device() && slot_of_row.defined() &&
                    slot_of_row.sizes() == h.sizes().slice(0, 1),
                "gated_experts: want int64 row_of_slot [M] and slot_of_row [", h.size(0), "] on ",
                h.device(), ", got ", row_of_slot.sizes(), " on ", row_of_slot.device());
  }
  expert_groups(rows_of_expert.counts, routed.slots());  // refuses what does not fit
  const ExpertBlock block{routed, sublayers, embeddings, gradients};
  return suits_fused_block(block) ? expert_block_fused(block) : composed(block);
}

}  // namespace ballast::experts
