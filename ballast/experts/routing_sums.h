// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/experts/routing_sum_order.h"

namespace ballast::experts {

// Adds what was seen of a routing to `sums` [kRoutingSums + E] float64 (routing_sum_order.h); of
// gates [kRoutingSums]. On a GPU it is one kernel, whose sums are always taken in the same order.

struct SeenAssignment {
  at::Tensor weights;       // [T, K] fp32 or fp64
  at::Tensor best, expert;  // [T] int32: each token's best expert, and the first it is assigned to
  at::Tensor prices;        // [N, E] float64, of all groups and rounds; undefined: replayed
};
void add_seen(const at::Tensor& sums, const SeenAssignment& seen);

struct SeenGates {
  at::Tensor weights;      // [T, K] fp32 or fp64
  at::Tensor expert;       // [T, K] int64; `experts` stands for none
  at::Tensor slot_of_row;  // [T, K] int64; negative: no place
  at::Tensor losses;       // [P] float64: balance losses
  int64_t experts = 0;
};
void add_seen(const at::Tensor& sums, const SeenGates& seen);

}  // namespace ballast::experts
