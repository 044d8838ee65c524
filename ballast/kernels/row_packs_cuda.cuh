// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

namespace ballast::kernels {

// For kernels in which one warp goes over one row: several neighbours in one access.

template <typename Scalar, int kSize>
struct alignas(sizeof(Scalar) * kSize) Pack {
  Scalar values[kSize];
};

constexpr int kLanes = 32;
constexpr int kWarpsPerBlock = 8;

// bf16 and fp32 rows are summed in fp32, fp64 rows in fp64.
template <typename Scalar>
using RowSum = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;

// Which row this warp has, where a block has kLanes x kWarpsPerBlock threads.
__device__ inline int64_t row_of_warp() {
  return int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
}
inline unsigned blocks_for(int64_t rows) {
  return static_cast<unsigned>((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
}

// Every lane gets the sum of all. The order is fixed: the same bits every time.
template <typename T>
__device__ T sum_over_warp(T mine) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(0xffffffffu, mine, distance);
  return mine;
}

}  // namespace ballast::kernels
