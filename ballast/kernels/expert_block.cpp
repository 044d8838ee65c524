// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_block.h"

#include "ballast/kernels/expert_block_fused.h"
#include "ballast/kernels/expert_feed_forward_paths.h"
#include "ballast/kernels/expert_gate.h"
#include "ballast/kernels/permute_rows.h"

namespace ballast {

using at::Tensor;

namespace {

Tensor composed(const Tensor& h, const ExpertSlots& slots,
                const std::vector<ExpertWeights>& sublayers, const Parameter& embeddings,
                MatrixGradients gradients) {
  const bool in_slots = !slots.row_of_slot.defined();
  const Tensor rows = in_slots ? h : permute_rows(h, slots.row_of_slot, slots.slot_of_row);
  Tensor stacked = rows;
  for (const ExpertWeights& weights : sublayers)
    stacked = expert_feed_forward(stacked, slots.rows_of_expert, weights, gradients);
  const Tensor gated = gated_residual(rows, stacked, slots.rows_of_expert.counts, embeddings);
  return in_slots ? gated : permute_rows(gated, slots.slot_of_row, slots.row_of_slot);
}

}  // namespace

Tensor gated_experts(const Tensor& h, const ExpertSlots& slots,
                     const std::vector<ExpertWeights>& sublayers, const Parameter& embeddings,
                     MatrixGradients gradients) {
  TORCH_CHECK(h.dim() == 2, "gated_experts: want h [N, D], got ", h.sizes());
  const Tensor& row_of_slot = slots.row_of_slot;
  const int64_t experts = slots.rows_of_expert.experts();
  for (const ExpertWeights& weights : sublayers) check_expert_weights(h.size(1), experts, weights);
  TORCH_CHECK(embeddings.value.sizes() == at::IntArrayRef({experts, h.size(1)}),
              "gated_experts: want embeddings [", experts, ", ", h.size(1), "], got ",
              embeddings.value.sizes());
  if (row_of_slot.defined()) {
    TORCH_CHECK(row_of_slot.dim() == 1 && row_of_slot.scalar_type() == at::kLong &&
                    row_of_slot.device() == h.device() && slots.slot_of_row.defined() &&
                    slots.slot_of_row.sizes() == h.sizes().slice(0, 1),
                "gated_experts: want int64 row_of_slot [M] and slot_of_row [", h.size(0), "] on ",
                h.device(), ", got ", row_of_slot.sizes(), " on ", row_of_slot.device());
  }
  expert_groups(
      slots.rows_of_expert.counts,
      row_of_slot.defined() ? row_of_slot.size(0) : h.size(0));  // refuses what does not fit
  const ExpertBlock block{slots, sublayers, embeddings, gradients};
  return suits_fused_block(h, block) ? expert_block_fused(h.contiguous(), block)
                                     : composed(h, slots, sublayers, embeddings, gradients);
}

}  // namespace ballast
