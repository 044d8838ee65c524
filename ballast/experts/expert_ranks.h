// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

struct ExpertRanks {
  at::Tensor rank;   // [G, C] int64: how many before it in its group chose the same
  at::Tensor loads;  // [G, E] int64: how many chose each expert
};

// Counts choices group by group, in their order. expert [G, C] int64, each in [0, experts], where
// `experts` stands for none: counted by itself, and not among the loads. The host never waits.
ExpertRanks expert_ranks(const at::Tensor& expert, int64_t experts);

struct BlockSlots {
  at::Tensor slot_of_row;  // [T, K] int64; -1: none
  at::Tensor row_of_slot;  // [E P block] int64; -1: nobody's
};

// How choices of P equal groups fill blocks of slots, one for each expert and group, numbered by
// expert, then group. expert [T, K] int64, each in [0, E], where E stands for none. A group's first
// choices come before its second ones, each in the order of tokens. What finds its block full has
// no slot. The host never waits.
struct BlockShape {
  int64_t experts = 1, groups = 1, block = 1;
};
BlockSlots block_slots(const at::Tensor& expert, const BlockShape& shape);

}  // namespace ballast::experts
