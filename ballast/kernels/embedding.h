// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast {

// token_embedding[tokens] + position_embedding[positions].
// tokens [T] int64, positions [T] int64, token_embedding [V, D], position_embedding [S, D] -> [T,
// D] Its inputs are indices, so the result hangs on autograd's graph by `graph_root`, any tensor
// that requires a gradient (which it is never given).
at::Tensor embed(const at::Tensor& tokens, const at::Tensor& positions,
                 const Parameter& token_embedding, const Parameter& position_embedding,
                 const at::Tensor& graph_root);

// Rows of a table of which `part` [R, D] holds those from `first` on; zeros for all others.
// indices [T] int64 -> [T, D]. Hangs on the graph by `graph_root`, as embed().
at::Tensor look_up(const at::Tensor& indices, int64_t first, const Parameter& part,
                   const at::Tensor& graph_root);

}  // namespace ballast
