// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/kernels/expert_feed_forward.h"
#include "ballast/kernels/expert_rows.h"

namespace ballast {

// The ways expert_feed_forward is computed, but for expert_block_fused.h. x and dy are contiguous
// and the rows fit.

// Refuses weights that do not fit rows of this width, or each other.
void check_expert_weights(int64_t width, int64_t experts, const ExpertWeights& weights);

// The values of ExpertWeights, or the sums of their gradients (undefined where none is wanted).
struct ExpertStacks {
  at::Tensor norm, norm_bias, up, up_bias, down, down_bias;
};

// What forward keeps for backward, apart from x and the weights.
struct KeptForBackward {
  std::vector<at::Tensor> tensors;
  int64_t tasks = 1;  // among how many threads the rows were divided
};

// On the CPU in fp32 and fp64: each thread has its own rows and runs its matrix products alone.
at::Tensor expert_feed_forward_cpu(const at::Tensor& x, at::IntArrayRef rows_of_expert,
                                   const ExpertStacks& weights, KeptForBackward& kept);
at::Tensor expert_feed_forward_backward_cpu(const at::Tensor& dy, const at::Tensor& x,
                                            at::IntArrayRef rows_of_expert,
                                            const ExpertStacks& weights, const ExpertStacks& sums,
                                            const KeptForBackward& kept);

// Everywhere else: batched products of neighbouring experts with equally many rows.
at::Tensor expert_feed_forward_batched(const at::Tensor& x, at::IntArrayRef rows_of_expert,
                                       const ExpertStacks& weights, KeptForBackward& kept);
at::Tensor expert_feed_forward_backward_batched(const at::Tensor& dy, const at::Tensor& x,
                                                at::IntArrayRef rows_of_expert,
                                                const ExpertStacks& weights,
                                                const ExpertStacks& sums,
                                                const KeptForBackward& kept);

// On a GPU in bf16, for unequal rows, or rows that only the device knows: one pass over rows
// between the matrix products, which are batched whatever the rows. The host never waits.
bool suits_uneven(const at::Tensor& x, const ExpertRows& rows, const ExpertStacks& weights);
at::Tensor expert_feed_forward_uneven(const at::Tensor& x, const ExpertRows& rows,
                                      const ExpertStacks& weights, KeptForBackward& kept);
at::Tensor expert_feed_forward_backward_uneven(const at::Tensor& dy, const at::Tensor& x,
                                               const std::vector<int64_t>& counts,
                                               const ExpertStacks& weights,
                                               const ExpertStacks& sums,
                                               const KeptForBackward& kept);

}  // namespace ballast
