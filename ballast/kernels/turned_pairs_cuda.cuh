// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/cuda/detail/IntegerDivider.cuh>
#include <cstdint>

#include "ballast/kernels/held_rows_cuda.cuh"

// What a thread of turned_heads_cuda.cu has of a head, and where.
namespace ballast::kernels::turned_heads {

constexpr int kThreads = 256;

enum Kind { kQueries, kKeys, kValues, kKinds };

// Divides by multiplying: a division proper takes as long as a thread's reads and writes.
using Divider = at::cuda::detail::IntDivider<unsigned>;

// A thread has a pack of a head's first half and the one W/2 further: `group` threads have a head.
// A grid's y is the kind of head; threads go over all heads of that kind and all tokens.
// REQUIRES: there are fewer than 2^31 threads of a kind.
struct Shape {
  unsigned tokens;
  int width;
  Divider group, heads[kKinds];
  Divider period;    // rows of the tables
  Divider sequence;  // tokens of a sequence

  __device__ int64_t columns() const {
    return int64_t{heads[kQueries].divisor + 2 * heads[kKeys].divisor} * width;
  }
  __device__ int first_column(int kind) const {
    const unsigned before =
        kind == kQueries ? 0
                         : heads[kQueries].divisor + (kind == kValues ? heads[kKeys].divisor : 0);
    return static_cast<int>(before) * width;
  }
  __host__ __device__ unsigned count(int kind) const {
    return tokens * heads[kind].divisor * group.divisor;
  }
  // The norm's row of `inverse`, and the place in it.
  __device__ int64_t inverse_at(int kind, unsigned token, int head) const {
    return int64_t{token} * (heads[kQueries].divisor + heads[kKeys].divisor) +
           (kind == kKeys ? heads[kQueries].divisor : 0) + head;
  }
};

// Where a thread's numbers are, of all that it goes over.
struct Place {
  unsigned token;
  int head, column;  // column: of its first pack, within the head
};
template <int kSize>
__device__ Place place_of(const Shape& shape, int kind, unsigned i) {
  const auto [head, pack] = shape.group.divmod(i);
  const auto [token, of_token] = shape.heads[kind].divmod(head);
  return {token, static_cast<int>(of_token), static_cast<int>(pack) * kSize};
}
// Where they begin in a tensor of this many columns.
__device__ inline int64_t begin_of(const Shape& shape, int kind, const Place& place,
                                   int64_t columns) {
  return place.token * columns + shape.first_column(kind) + int64_t{place.head} * shape.width +
         place.column;
}

// Over the threads of a head, which lie side by side in a warp.
template <typename Sum>
__device__ Sum sum_over_group(Sum mine, const Shape& shape) {
  for (unsigned distance = shape.group.divisor / 2; distance > 0; distance /= 2)
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
