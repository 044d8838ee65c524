// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

struct RoutingScores {
  at::Tensor scores;  // [T, E] fp32
  at::Tensor best;    // [T] int32: the expert of each row's largest score; of equal ones the first
};

// What an assignment compares: affinities [T, E] fp32 or fp64 divided by the experts' `lengths` [E]
// of the same type (undefined: by nothing), without gradient. Row p is that of token
// row_of_position[p] ([T] int64; undefined: of token p). On a GPU it is one kernel.
// An expert of no length has no direction, and scores of zero.
RoutingScores routing_scores(const at::Tensor& affinities, const at::Tensor& lengths,
                             const at::Tensor& row_of_position);

}  // namespace ballast::experts
