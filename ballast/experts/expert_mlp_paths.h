// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/experts/expert_layout.h"
#include "ballast/experts/expert_mlp.h"
#include "ballast/experts/expert_rows.h"

namespace ballast::experts {

// How expert_mlp.h is computed. x and dy are contiguous and the rows fit.

// Refuses weights that do not fit rows of this width, or each other.
void check_expert_weights(int64_t width, int64_t experts, const ExpertWeights& weights);

// The values of ExpertWeights, or the sums of their gradients (undefined where none is wanted).
struct ExpertStacks {
  at::Tensor norm, norm_bias, up, up_bias, down, down_bias;
  ExpertForm form = {};
};

// What forward keeps for backward, apart from x and the weights.
struct KeptForBackward {
  std::vector<at::Tensor> tensors = {};
  int64_t tasks = 1;  // among how many threads the rows were divided
  // False: there is none, and experts' numbers of rows may differ from pass to pass.
  bool has_backward = true;
};

// On the CPU in fp32 and fp64, of the paper's form with all biases: each thread has its own rows
// and runs its matrix products alone.
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

// Residual sublayers of experts in bf16 on a GPU: the products of all experts at once, and between
// them one pass over rows each way (expert_block_passes.h). The host never waits. Where experts
// have different numbers of slots, there is one sublayer only.
struct ExpertBlock {
  const RoutedRows& routed;
  const std::vector<ExpertWeights>& sublayers;
  kernels::Parameter embeddings;  // without a value: the gate is 1
  MatrixGradients gradients = MatrixGradients::kAdded;
};

bool suits_fused_block(const ExpertBlock& block);
// As gated_experts. REQUIRES: suits_fused_block, and the shapes fit.
at::Tensor expert_block_fused(const ExpertBlock& block);

// h + sigmoid(h . w_e) (stack - h): the paper's sigmoid(h . w_e) f_e(h) + h, where stack is
// h + f_e(h). e is the row's expert, w_e its embedding. In bf16 the gate is computed in fp32.
// h, stack [N, D] sorted by expert, rows_of_expert [E] sums to N (zeros allowed),
// expert_embeddings [E, D] -> [N, D]; gradients to h, stack and the embeddings.
at::Tensor gated_residual(const at::Tensor& h, const at::Tensor& stack,
                          at::IntArrayRef rows_of_expert,
                          const kernels::Parameter& expert_embeddings);

// Its passes over rows, all contiguous: on the CPU in fp32 and fp64 one each way; elsewhere
// libtorch's operations on neighbouring experts with equally many rows.

struct GatedRows {
  at::Tensor y;      // [N, D]
  at::Tensor gates;  // [N, 1]
};
GatedRows gated_residual_cpu(const at::Tensor& h, const at::Tensor& stack,
                             at::IntArrayRef rows_of_expert, const at::Tensor& embeddings);
GatedRows gated_residual_batched(const at::Tensor& h, const at::Tensor& stack,
                                 at::IntArrayRef rows_of_expert, const at::Tensor& embeddings);

struct GateInputs {
  const at::Tensor &h, &stack, &gates, &embeddings;
  const at::Tensor& embedding_sums;  // added to, if defined
  at::IntArrayRef rows_of_expert;
};
struct GateGradients {
  at::Tensor dh, dstack;
};
GateGradients gated_residual_backward_cpu(const GateInputs& in, const at::Tensor& dy);
GateGradients gated_residual_backward_batched(const GateInputs& in, const at::Tensor& dy);

}  // namespace ballast::experts
