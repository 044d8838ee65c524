// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/kernels/held_rows_cuda.cuh"

// What a thread of turned_heads_cuda.cu has of a head, and where.
namespace ballast::kernels::turned_heads {

constexpr int kThreads = 256;

enum Kind { kQueries, kKeys, kValues, kKinds };

// A thread has a pack of a head's first half and the one W/2 further: `group` threads have a head.
// A grid's y is the kind of head; threads go over all heads of that kind and all tokens.
struct Shape {
  int64_t tokens;
  int width, group;
  int heads[kKinds];
  int period;  // rows of the tables

  __device__ int columns() const { return (heads[kQueries] + 2 * heads[kKeys]) * width; }
  __device__ int first_column(int kind) const {
    return kind == kQueries ? 0 : (heads[kQueries] + (kind == kValues ? heads[kKeys] : 0)) * width;
  }
  __device__ int64_t count(int kind) const { return tokens * heads[kind] * group; }
};

// Where a thread's numbers are, of all that it goes over.
struct Place {
  int64_t token;
  int head, column;  // column: of its first pack, within the head
};
template <int kSize>
__device__ Place place_of(const Shape& shape, int kind, int64_t i) {
  const int64_t head = i / shape.group;
  return {head / shape.heads[kind], static_cast<int>(head % shape.heads[kind]),
          static_cast<int>(i % shape.group) * kSize};
}

// Over the threads of a head, which lie side by side in a warp.
template <typename Sum>
__device__ Sum sum_over_group(Sum mine, int group) {
  for (int distance = group / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(0xffffffffu, mine, distance);
  return mine;
}

// A thread's numbers of a head: those of its first half, and those W/2 further.
template <typename Scalar>
struct Pair {
  using Sum = RowSum<Scalar>;
  static constexpr int kSize = kSizeOf<Scalar>;

  __device__ Pair(const Words& a, const Words& b) {
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      first[l] = number<Scalar>(a, l);
      second[l] = number<Scalar>(b, l);
    }
  }
  // By the angles of a row of the tables, or back. REQUIRES: both lie on 16-byte boundaries.
  __device__ void turn(const Sum* cosines, const Sum* sines, Sum sign) {
    constexpr int kAtOnce = 16 / sizeof(Sum);
    using Numbers = Pack<Sum, kAtOnce>;
#pragma unroll
    for (int p = 0; p < kSize / kAtOnce; ++p) {
      const Numbers c = reinterpret_cast<const Numbers*>(cosines)[p];
      const Numbers s = reinterpret_cast<const Numbers*>(sines)[p];
#pragma unroll
      for (int l = 0; l < kAtOnce; ++l) {
        const Sum x = first[p * kAtOnce + l], y = second[p * kAtOnce + l];
        first[p * kAtOnce + l] = x * c.values[l] - sign * y * s.values[l];
        second[p * kAtOnce + l] = y * c.values[l] + sign * x * s.values[l];
      }
    }
  }

  Sum first[kSize], second[kSize];
};

}  // namespace ballast::kernels::turned_heads
