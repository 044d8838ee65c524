// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/kernels/expert_feed_forward.h"
#include "ballast/kernels/expert_rows.h"
#include "ballast/kernels/parameter.h"

namespace ballast {

// Rows and the experts they are for. There are M slots, sorted by expert: slot s holds row
// row_of_slot[s] of [N, D] (negative: nobody's), and row r stands in slot slot_of_row[r], each in
// exactly one. int64; both undefined: row r is in slot r.
struct ExpertSlots {
  ExpertRows rows_of_expert = {};  // slots of each, M in all; the host knows them
  at::Tensor row_of_slot = {}, slot_of_row = {};
};

// h + sigmoid(h . w_e) f_e(h) for each row, where f_e is what the residual sublayers of its expert
// add to it, and w_e the expert's embedding [E, D]. h [N, D] -> [N, D]; gradients to h, the
// sublayers' weights and the embeddings.
// On a GPU in bf16, where experts have equally many slots, rows are moved by the passes that
// compute on them and f_e is never rounded as a difference; else it is the composition of
// permute_rows, expert_feed_forward and gated_residual.
at::Tensor gated_experts(const at::Tensor& h, const ExpertSlots& slots,
                         const std::vector<ExpertWeights>& sublayers,
                         const Parameter& expert_embeddings,
                         MatrixGradients gradients = MatrixGradients::kAdded);

}  // namespace ballast
