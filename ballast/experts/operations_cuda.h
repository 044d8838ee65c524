// SPDX-License-Identifier: Apache-2.0
// What the .cu files of this room do for tensors on a GPU; operations_cuda.cpp registers it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "ballast/kernels/optional_tensor.h"

namespace c10 {
template <class T>
class List;  // its header is large
}

namespace ballast::experts {

// balanced_slots_cuda.cu
void balanced_slots_cuda(const at::Tensor& expert, const at::Tensor& place, const at::Tensor& loads,
                         const kernels::OptionalTensor& row_of_position,
                         const at::Tensor& slot_of_row, const at::Tensor& row_of_slot,
                         const at::Tensor& expert_of_row);

// chosen_weights_cuda.cu
at::Tensor chosen_weights_cuda(const at::Tensor& affinities, const at::Tensor& expert, bool sigmoid,
                               bool among_all);
at::Tensor chosen_weights_backward_cuda(const at::Tensor& dweights, const at::Tensor& affinities,
                                        const at::Tensor& expert, const at::Tensor& weights,
                                        bool sigmoid, bool among_all,
                                        const kernels::OptionalTensor& balance);

// expert_block_backward_cuda.cu
at::Tensor expert_norm_backward_cuda(const at::Tensor& dnormed,
                                     const c10::List<kernels::OptionalTensor>& inputs,
                                     const c10::List<kernels::OptionalTensor>& wanted);

// expert_block_passes_cuda.cu
std::tuple<at::Tensor, at::Tensor, at::Tensor> expert_normalize_cuda(
    const at::Tensor& x, const kernels::OptionalTensor& row_of_slot,
    const kernels::OptionalTensor& ends, const kernels::OptionalTensor& before,
    const kernels::OptionalTensor& change, const at::Tensor& weight, const at::Tensor& bias);
std::tuple<at::Tensor, at::Tensor> expert_gate_cuda(const at::Tensor& x,
                                                    const kernels::OptionalTensor& row_of_slot,
                                                    const kernels::OptionalTensor& ends,
                                                    const kernels::OptionalTensor& before,
                                                    const at::Tensor& change,
                                                    const kernels::OptionalTensor& bias,
                                                    const kernels::OptionalTensor& embeddings);
std::tuple<at::Tensor, at::Tensor> expert_gate_backward_cuda(
    const at::Tensor& dy, const kernels::OptionalTensor& row_of_slot,
    const kernels::OptionalTensor& ends, const kernels::OptionalTensor& before,
    const at::Tensor& change, const kernels::OptionalTensor& bias,
    const kernels::OptionalTensor& gates);

// expert_grouped_passes_cuda.cu
at::Tensor expert_ends_cuda(const at::Tensor& rows, at::IntArrayRef rows_of_expert);
at::Tensor expert_padded_slots_cuda(const at::Tensor& ends, int64_t block);
void expert_bias_relu_cuda_(const at::Tensor& y, const at::Tensor& ends, const at::Tensor& bias);
void expert_take_back_relu_cuda_(const at::Tensor& dactive, const at::Tensor& active,
                                 const at::Tensor& ends, const kernels::OptionalTensor& sum);
void expert_add_cuda_(const at::Tensor& sum, const at::Tensor& terms, const at::Tensor& ends);

// expert_ranks_cuda.cu
void count_choices_cuda(const at::Tensor& expert, const at::Tensor& rank, const at::Tensor& counts);
void block_slots_cuda(const at::Tensor& expert, int64_t experts, int64_t groups,
                      const at::Tensor& slot_of_row, const at::Tensor& row_of_slot);

// gate_choices_cuda.cu
void gate_choices_cuda(const at::Tensor& logits, const kernels::OptionalTensor& lengths,
                       const at::Tensor& expert, const at::Tensor& probability_sums);
void gate_balance_cuda(const at::Tensor& expert, const at::Tensor& probability_sums, double scale,
                       const at::Tensor& losses, const at::Tensor& shares);

// gate_logits_cuda.cu
at::Tensor in_two_parts_cuda(const at::Tensor& x);
void add_both_cuda_(const at::Tensor& sum, const at::Tensor& terms);

// routing_scores_cuda.cu
void routing_scores_cuda(const at::Tensor& affinities, const kernels::OptionalTensor& lengths,
                         const kernels::OptionalTensor& row_of_position, const at::Tensor& scores,
                         const at::Tensor& best);

// routing_sums_cuda.cu
void add_seen_assignment_cuda(const at::Tensor& sums, const at::Tensor& weights,
                              const at::Tensor& best, const at::Tensor& expert,
                              const kernels::OptionalTensor& prices);
void add_seen_gates_cuda(const at::Tensor& sums, const at::Tensor& weights,
                         const at::Tensor& expert, const at::Tensor& slot_of_row,
                         const at::Tensor& losses, int64_t experts);

// shuffle_cuda.cu
void draw_shuffle_cuda(const at::Tensor& keys, int64_t rank, int64_t workers,
                       const at::Tensor& sent, const kernels::OptionalTensor& arrived);

// spread_rows_cuda.cu
at::Tensor gather_rows_cuda(const at::Tensor& x, const at::Tensor& source);
at::Tensor sum_rows_cuda(const at::Tensor& x, const at::Tensor& rows);
at::Tensor mix_rows_cuda(const at::Tensor& h, const at::Tensor& y, const at::Tensor& rows,
                         const at::Tensor& weights);
std::tuple<at::Tensor, at::Tensor, at::Tensor> mix_rows_backward_cuda(
    const at::Tensor& dmixed, const at::Tensor& h, const at::Tensor& y, const at::Tensor& rows,
    const at::Tensor& source, const at::Tensor& weights);

}  // namespace ballast::experts
