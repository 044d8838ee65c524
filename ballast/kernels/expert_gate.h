// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast {

// h + sigmoid(h . w_e) (stack - h): the paper's sigmoid(h . w_e) f_e(h) + h, where stack is
// h + f_e(h). e is the row's expert, w_e its embedding. In bf16 the gate is computed in fp32.
// h, stack [N, D] sorted by expert, rows_of_expert [E] sums to N (zeros allowed),
// expert_embeddings [E, D] -> [N, D]; gradients to h, stack and the embeddings.
at::Tensor gated_residual(const at::Tensor& h, const at::Tensor& stack,
                          at::IntArrayRef rows_of_expert, const Parameter& expert_embeddings);

}  // namespace ballast
