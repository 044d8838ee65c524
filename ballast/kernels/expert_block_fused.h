// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/expert_block.h"

namespace ballast {

// Residual sublayers of experts with equally many slots each, in bf16 on a GPU: batched products,
// and between them one pass over rows each way (expert_slots.h). The host never waits.
struct ExpertBlock {
  const ExpertSlots& slots;
  const std::vector<ExpertWeights>& sublayers;
  Parameter embeddings;  // without a value: the gate is 1
  MatrixGradients gradients = MatrixGradients::kAdded;
};

bool suits_fused_block(const at::Tensor& h, const ExpertBlock& block);
// As gated_experts. REQUIRES: suits_fused_block, h is contiguous and the shapes fit.
at::Tensor expert_block_fused(const at::Tensor& h, const ExpertBlock& block);

}  // namespace ballast
