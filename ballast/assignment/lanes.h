// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ballast {

// Sixteen floats that are worked on together. The compiler maps them to what the processor has;
// the operations, and so the bits, are the same everywhere (the room is compiled without fused
// multiply-add, whose use would depend on the processor).
constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

#define BALLAST_INLINE inline __attribute__((always_inline))

BALLAST_INLINE Floats load_lanes(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

BALLAST_INLINE void store_lanes(Floats lanes, float* to) { std::memcpy(to, &lanes, sizeof(lanes)); }

BALLAST_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
BALLAST_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

// Halves on halves, always in the same order.
template <typename Combine>
BALLAST_INLINE float fold(Floats lanes, Combine combine) {
  using Half = float __attribute__((vector_size(32)));
  using Quarter = float __attribute__((vector_size(16)));
  Half low;
  Half high;
  std::memcpy(&low, &lanes, sizeof(low));
  std::memcpy(&high, reinterpret_cast<const char*>(&lanes) + sizeof(low), sizeof(high));
  low = combine(low, high);
  Quarter left;
  Quarter right;
  std::memcpy(&left, &low, sizeof(left));
  std::memcpy(&right, reinterpret_cast<const char*>(&low) + sizeof(left), sizeof(right));
  left = combine(left, right);
  left = combine(left, __builtin_shufflevector(left, left, 2, 3, 2, 3));
  left = combine(left, __builtin_shufflevector(left, left, 1, 1, 1, 1));
  return left[0];
}

BALLAST_INLINE float sum_of(Floats lanes) {
  return fold(
      lanes, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

BALLAST_INLINE float largest_of(Floats lanes) {
  return fold(
      lanes, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

// 2^x to about five digits; below 2^-126 the result is meaningless but tiny.
BALLAST_INLINE Floats exp2_of(Floats x) {
  const Floats none = {};
  const Floats bounded = smaller(larger(x, none - 126.0F), none + 126.0F);
  const Floats shift = none + 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats whole = (bounded + shift) - shift;
  const Floats f = bounded - whole;  // -0.5 .. 0.5
  Floats y = none + 9.61812911e-3F;
  y = y * f + 5.55041087e-2F;
  y = y * f + 2.40226507e-1F;
  y = y * f + 6.93147181e-1F;
  y = y * f + 1.0F;
  const Ints exponent = (__builtin_convertvector(whole, Ints) + 127) << 23;
  Floats power;
  std::memcpy(&power, &exponent, sizeof(power));
  return y * power;
}

}  // namespace ballast
