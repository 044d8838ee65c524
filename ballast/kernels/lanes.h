// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "ballast/system/vector_clones.h"

namespace ballast::kernels {

// Sixteen numbers that are computed with together, in instructions that the processor has
// (system/vector_clones.h). For functions that promise the same bits wherever a row stands: here
// nothing is left to the compiler's choice of what it vectorizes.
inline constexpr int64_t kLanes = 16;

template <typename Scalar>
struct LanesOf;
template <>
struct LanesOf<float> {
  using Type = float __attribute__((vector_size(64)));
};
template <>
struct LanesOf<double> {
  using Type = double __attribute__((vector_size(128)));
};
template <typename Scalar>
using Lanes = typename LanesOf<Scalar>::Type;

template <typename Scalar>
BALLAST_INLINE void load(const Scalar* from, Lanes<Scalar>& to) {
  std::memcpy(&to, from, sizeof(to));
}
// The first `count` of them; the others are zeros.
template <typename Scalar>
BALLAST_INLINE void load_some(const Scalar* from, int64_t count, Lanes<Scalar>& to) {
  to = Lanes<Scalar>{};
  std::memcpy(&to, from, static_cast<size_t>(count) * sizeof(Scalar));
}
template <typename Scalar>
BALLAST_INLINE void store_some(const Lanes<Scalar>& from, int64_t count, Scalar* to) {
  std::memcpy(to, &from, static_cast<size_t>(count) * sizeof(Scalar));
}

// Lanes i and i + 8 first, then 4, 2 and 1 apart.
template <typename Scalar>
BALLAST_INLINE Scalar sum_of(const Lanes<Scalar>& a) {
  Scalar r[kLanes];
  std::memcpy(r, &a, sizeof(r));
  for (int64_t apart = kLanes / 2; apart > 0; apart /= 2) {
    for (int64_t i = 0; i < apart; ++i) r[i] += r[i + apart];
  }
  return r[0];
}

}  // namespace ballast::kernels
