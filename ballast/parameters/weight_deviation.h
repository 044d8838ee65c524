// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace ballast::parameters {

// GPT-2's initial weights: their standard deviation, and that of projections which are added to the
// residual stream, smaller so that the sum of all 2 L keeps its size.
inline constexpr double kWeightDeviation = 0.02;

inline double residual_deviation(int64_t blocks) {
  return kWeightDeviation / std::sqrt(2.0 * static_cast<double>(blocks));
}

}  // namespace ballast::parameters
