// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// K balanced assignments of the same P groups, one after another. int32, as TensorAssignment has
// them.
struct AssignedRounds {
  at::Tensor expert_of_token, place_of_token;  // [K, P, T/G]
  at::Tensor loads;                            // [K, P, E]
};

// Each expert has a block of K ceil(T/G / E) slots for each group. Slots are numbered by expert,
// then group. In a block the tokens of the first round come first, each in the order of its places.
struct BalancedSlots {
  at::Tensor slot_of_row;    // [T, K] int64
  at::Tensor row_of_slot;    // [E P K ceil(T/G / E)] int64; -1: nobody's
  at::Tensor expert_of_row;  // [T, K] int64
};

// row_of_position [T] int64: the row that each token of the groups is, one after another;
// undefined: they are the rows in their order. On a GPU it is one kernel.
BalancedSlots balanced_slots(const AssignedRounds& rounds, const at::Tensor& row_of_position);

}  // namespace ballast::experts
