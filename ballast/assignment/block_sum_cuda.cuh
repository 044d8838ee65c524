// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::assignment {

// An exclusive sum over the block's threads; `total` is the sum of all. `of_warp`: shared, a number
// a warp.
inline __device__ int32_t sum_before(int32_t value, int32_t* of_warp, int32_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffU, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  __syncthreads();
  return before + sum - value;
}

}  // namespace ballast::assignment
