// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ballast/kernels/expert_places_cuda.cuh"

namespace ballast {

// What kernels of expert_slots.h see of the slots.
struct Slots {
  const int64_t* row_of_slot;  // null: row s is in slot s
  int64_t count, of_expert;
};
inline Slots slots_of(const std::optional<at::Tensor>& row_of_slot, int64_t rows, int64_t experts) {
  const int64_t count = row_of_slot ? row_of_slot->size(0) : rows;
  return {row_of_slot ? row_of_slot->const_data_ptr<int64_t>() : nullptr, count, count / experts};
}

__device__ inline int64_t row_at(const Slots& slots, int64_t slot) {
  return slots.row_of_slot == nullptr ? slot : slots.row_of_slot[slot];
}
__device__ inline int expert_at(const Slots& slots, int64_t slot) {
  return static_cast<int>(slot / slots.of_expert);
}

}  // namespace ballast
