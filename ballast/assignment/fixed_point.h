// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ballast::assignment {

// In the exact solver scores and prices are integers, "units": a score times a power of two,
// truncated. Sums and comparisons are exact and the same on every machine.
using Units = int64_t;

struct FixedPoint {
  double per_score = 1;     // units in 1.0, a power of two
  Units highest_price = 0;  // of an expert that gets no tokens; all others are below
  bool fits_float = true;   // whether fp32 can hold per_score
};

inline FixedPoint units_of_bits(float largest_magnitude, int bits, Units highest_price) {
  int exponent = 0;  // largest_magnitude < 2^exponent
  std::frexp(largest_magnitude, &exponent);
  return {.per_score = std::ldexp(1.0, bits - exponent),
          .highest_price = highest_price,
          .fits_float = bits - exponent <= 127};
}

// |units| < 2^29, prices 0 ..= 2^30 + 1 (two prices never differ by more than two scores do):
// profits, score - price, fit 32 bits.
inline FixedPoint narrow_units(float largest_magnitude) {
  return units_of_bits(largest_magnitude, 29, (Units{1} << 30) + 1);
}

// For scores of a very wide range: |units| < 2^50. Around forbidden pairs prices can differ by as
// much as a chain of all experts adds up to, which leaves fewer bits.
inline FixedPoint wide_units(float largest_magnitude, int64_t experts, bool has_forbidden) {
  if (!has_forbidden) return units_of_bits(largest_magnitude, 50, (Units{1} << 51) + 1);
  const int chain = std::bit_width(static_cast<uint64_t>(experts));
  return units_of_bits(largest_magnitude, std::min(44, 54 - chain), Units{1} << 56);
}

}  // namespace ballast::assignment
