// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/held_rows_cuda.cuh"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

// What the kernels of expert_block_passes.h see of their tensors.

constexpr int kSize = kernels::kSizeOf<at::BFloat16>;
constexpr int kStep = kernels::kLanes * kSize;
using Unit = kernels::Words;  // kSize numbers
using kernels::load;
using kernels::store;

inline const dim3 kBlock(kernels::kLanes, kernels::kWarpsPerBlock);

__device__ inline float number(const Unit& unit, int i) {
  return kernels::number<at::BFloat16>(unit, i);
}
__device__ inline Unit rounded(const float (&numbers)[kSize]) {
  return kernels::rounded<at::BFloat16>(numbers);
}

// A stack of experts' vectors.
struct Stack {
  const at::BFloat16* first;  // null: there is none
  int64_t stride;
  __device__ const at::BFloat16* of(int expert) const { return first + expert * stride; }
};
inline Stack raw(const at::Tensor& stack) {
  return {stack.const_data_ptr<at::BFloat16>(), stack.stride(0)};
}
inline Stack raw(const kernels::OptionalTensor& stack) { return stack ? raw(*stack) : Stack{}; }

// The slots of all experts, sorted by expert.
struct Slots {
  const int64_t* row_of_slot;  // null: row s is in slot s
  const int32_t* ends;         // null: each expert has of_expert slots
  int64_t count, of_expert;
  int experts;

  __device__ int64_t row(int64_t slot) const {
    return row_of_slot == nullptr ? slot : row_of_slot[slot];
  }
  __device__ int64_t begin(int expert) const {
    return ends == nullptr ? expert * of_expert : expert == 0 ? 0 : ends[expert - 1];
  }
  __device__ int64_t end(int expert) const {
    return ends == nullptr ? (expert + 1) * of_expert : ends[expert];
  }
  __device__ int expert(int64_t slot) const {
    if (ends == nullptr) return static_cast<int>(slot / of_expert);
    int first = 0, last = experts - 1;
    while (first < last) {
      const int middle = (first + last) / 2;
      if (ends[middle] > slot) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return first;
  }
};
inline Slots slots_of(const kernels::OptionalTensor& row_of_slot,
                      const kernels::OptionalTensor& ends, int64_t rows, int64_t experts) {
  const int64_t count = row_of_slot ? row_of_slot->size(0) : rows;
  return {.row_of_slot = kernels::data_or_null<int64_t>(row_of_slot),
          .ends = kernels::data_or_null<int32_t>(ends),
          .count = count,
          .of_expert = count / experts,
          .experts = static_cast<int>(experts)};
}

// Slots are summed over in parts, each of one expert. A part is the slots of an expert within one
// of the chunks of kSlotsOfPart that all slots are cut into. Its number is chunk + expert: no two
// parts share one, because chunks and experts both only ever grow along the slots.
constexpr int kSlotsOfPart = 32;

struct Part {
  int expert;
  int64_t first;
  int count;  // 0: there is no part of this number
};
inline int64_t parts_of(const Slots& slots) {
  return (slots.count + kSlotsOfPart - 1) / kSlotsOfPart + slots.experts;
}
__device__ inline int64_t first_part(const Slots& slots, int expert) {
  return slots.begin(expert) / kSlotsOfPart + expert;
}
__device__ inline Part part_at(const Slots& slots, int64_t number) {
  int expert = 0, last = slots.experts - 1;  // the last one whose parts begin here or before
  while (expert < last) {
    const int middle = (expert + last + 1) / 2;
    if (first_part(slots, middle) <= number) {
      expert = middle;
    } else {
      last = middle - 1;
    }
  }
  const int64_t chunk = number - expert;
  const int64_t first = max(slots.begin(expert), chunk * kSlotsOfPart),
                end = min(slots.end(expert), (chunk + 1) * kSlotsOfPart);
  return {expert, first, end > first ? static_cast<int>(end - first) : 0};
}

}  // namespace ballast::experts
