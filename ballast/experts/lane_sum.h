// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/system/vector_clones.h"

namespace ballast::experts {

// The sum of term(i), in sixteen partial sums: the same order of additions on every processor.
template <typename Scalar, typename Term>
BALLAST_INLINE Scalar lane_sum(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 16;
  Scalar lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (; i < n; ++i) lanes[0] += term(i);
  Scalar sum = 0;
  for (const Scalar lane : lanes) sum += lane;
  return sum;
}

}  // namespace ballast::experts
