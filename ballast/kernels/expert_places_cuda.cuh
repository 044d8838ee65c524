// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/expert_row_passes_cuda.cuh"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast {

// What kernels of expert_row_passes_cuda.cuh see of their tensors.

constexpr int kSize = 8;  // numbers in 16 bytes
constexpr int kStep = kLanes * kSize;
using Unit = Pack<at::BFloat16, kSize>;

inline const dim3 kBlock(kLanes, kWarpsPerBlock);

struct Places {
  const int32_t* ends;
  int experts;
  int64_t rows, block, places;
};
inline Places raw(const RowPlaces& at) {
  return {at.ends.const_data_ptr<int32_t>(), static_cast<int>(at.ends.size(0)), at.rows, at.block,
          at.places()};
}

// A stack of experts' vectors.
struct Stack {
  const at::BFloat16* first;
  int64_t stride;
  __device__ const at::BFloat16* of(int expert) const { return first + expert * stride; }
};
inline Stack raw(const at::Tensor& stack) {
  return {stack.const_data_ptr<at::BFloat16>(), stack.stride(0)};
}

struct NormBack {
  const at::BFloat16 *dnormed, *dy, *x;
  const float *mean, *inverse;
  int64_t width;
};
inline NormBack raw(const NormGradient& in) {
  return {in.dnormed.const_data_ptr<at::BFloat16>(), in.dy.const_data_ptr<at::BFloat16>(),
          in.x.const_data_ptr<at::BFloat16>(),       in.mean.const_data_ptr<float>(),
          in.inverse.const_data_ptr<float>(),        in.x.size(1)};
}

__device__ inline int expert_of_row(const Places& at, int64_t row) {
  int first = 0, last = at.experts - 1;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (at.ends[middle] > row) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

__device__ inline int64_t begin_of(const Places& at, int expert) {
  return expert == 0 ? 0 : at.ends[expert - 1];
}

// What stands at a place: an expert's row, or nobody's: row -1.
struct Standing {
  int expert;
  int64_t row;
};
__device__ inline Standing standing_at(const Places& at, int64_t place) {
  if (at.block == 0) return {expert_of_row(at, place), place};
  const int expert = static_cast<int>(place / at.block);
  const int64_t row = begin_of(at, expert) + place % at.block;
  return {expert, row < at.ends[expert] ? row : -1};
}

__device__ inline Unit load(const at::BFloat16* from) {
  return *reinterpret_cast<const Unit*>(from);
}
__device__ inline void store(at::BFloat16* to, const Unit& unit) {
  *reinterpret_cast<Unit*>(to) = unit;
}
__device__ inline float number(const Unit& unit, int i) {
  return static_cast<float>(unit.values[i]);
}

}  // namespace ballast
