// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ballast/system/vector_clones.h"

namespace ballast::assignment {

// Sixteen floats that are worked on together, as two vectors of eight: GCC takes comparisons of
// vectors wider than the processor's apart into single numbers. The operations, and so the bits,
// are the same everywhere (the room is compiled without fused multiply-add, whose use would depend
// on the processor).
constexpr int64_t kLanes = 16;
using HalfLanes = float __attribute__((vector_size(kLanes / 2 * sizeof(float))));
struct Floats {
  HalfLanes low = {}, high = {};
};

BALLAST_INLINE Floats operator+(Floats a, Floats b) { return {a.low + b.low, a.high + b.high}; }
BALLAST_INLINE Floats operator-(Floats a, Floats b) { return {a.low - b.low, a.high - b.high}; }
BALLAST_INLINE Floats operator*(Floats a, Floats b) { return {a.low * b.low, a.high * b.high}; }
BALLAST_INLINE Floats operator+(Floats a, float b) { return {a.low + b, a.high + b}; }
BALLAST_INLINE Floats operator-(Floats a, float b) { return {a.low - b, a.high - b}; }
BALLAST_INLINE Floats operator*(Floats a, float b) { return {a.low * b, a.high * b}; }
BALLAST_INLINE void operator+=(Floats& a, Floats b) { a = a + b; }
BALLAST_INLINE void operator-=(Floats& a, Floats b) { a = a - b; }

BALLAST_INLINE Floats all_lanes(float x) { return Floats() + x; }

BALLAST_INLINE Floats load_lanes(const float* from) {
  Floats lanes;
  std::memcpy(&lanes.low, from, sizeof(lanes.low));
  std::memcpy(&lanes.high, from + kLanes / 2, sizeof(lanes.high));
  return lanes;
}

BALLAST_INLINE void store_lanes(Floats lanes, float* to) {
  std::memcpy(to, &lanes.low, sizeof(lanes.low));
  std::memcpy(to + kLanes / 2, &lanes.high, sizeof(lanes.high));
}

BALLAST_INLINE Floats larger(Floats a, Floats b) {
  return {a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}
BALLAST_INLINE Floats smaller(Floats a, Floats b) {
  return {a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high};
}

// Where a > b `then`, elsewhere 0.
BALLAST_INLINE Floats where_larger(Floats a, Floats b, Floats then) {
  const HalfLanes none = {};
  return {a.low > b.low ? then.low : none, a.high > b.high ? then.high : none};
}

// Halves on halves, always in the same order.
template <typename Combine>
BALLAST_INLINE float fold(Floats lanes, Combine combine) {
  using Quarter = float __attribute__((vector_size(16)));
  const HalfLanes both = combine(lanes.low, lanes.high);
  Quarter left;
  Quarter right;
  std::memcpy(&left, &both, sizeof(left));
  std::memcpy(&right, reinterpret_cast<const char*>(&both) + sizeof(left), sizeof(right));
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

// 2^whole, for whole numbers from -126 to 126.
BALLAST_INLINE HalfLanes power_of_two(HalfLanes whole) {
  using Ints = int32_t __attribute__((vector_size(sizeof(HalfLanes))));
  const Ints exponent = (__builtin_convertvector(whole, Ints) + 127) << 23;
  HalfLanes power;
  std::memcpy(&power, &exponent, sizeof(power));
  return power;
}

// 2^x to about five digits; below 2^-126 the result is meaningless but tiny.
BALLAST_INLINE Floats exp2_of(Floats x) {
  const Floats bounded = smaller(larger(x, all_lanes(-126.0F)), all_lanes(126.0F));
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats whole = (bounded + kShift) - kShift;
  const Floats f = bounded - whole;  // -0.5 .. 0.5
  Floats y = all_lanes(9.61812911e-3F);
  y = y * f + 5.55041087e-2F;
  y = y * f + 2.40226507e-1F;
  y = y * f + 6.93147181e-1F;
  y = y * f + 1.0F;
  return y * Floats{power_of_two(whole.low), power_of_two(whole.high)};
}

}  // namespace ballast::assignment
