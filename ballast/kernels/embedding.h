// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// token_embedding[tokens] + position_embedding[positions], where positions begin again as often as
// needed: token t stands at positions[t % P].
// tokens [T] int64, positions [P] int64, token_embedding [V, D], position_embedding [S, D] -> [T,
// D] REQUIRES: P divides T; where P < T no two positions are alike. Its inputs are indices, which
// have no gradient. So the result hangs on autograd's graph by `graph_root`: any tensor that
// requires a gradient. It never gets one.
at::Tensor embed(const at::Tensor& tokens, const at::Tensor& positions,
                 const Parameter& token_embedding, const Parameter& position_embedding,
                 const at::Tensor& graph_root);

// Rows of a table of which `part` [R, D] holds those from `first` on; zeros for all others.
// indices [T] int64 -> [T, D]. Hangs on the graph by `graph_root`, as embed().
at::Tensor look_up(const at::Tensor& indices, int64_t first, const Parameter& part,
                   const at::Tensor& graph_root);

// Both gradients are made of this: sum[indices[t % P]] += rows[t]. In bf16 the sum over rows is in
// fp32; on a GPU its order is always the same.  sum [R, D], indices [P], rows [T, D] REQUIRES: as
// for positions. Registered as ballast::add_rows_at_.
void add_rows_at_(const at::Tensor& sum, const at::Tensor& indices, const at::Tensor& rows);

}  // namespace ballast::kernels
