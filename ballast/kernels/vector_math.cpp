// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/vector_math.h"

#include <bit>
#include <limits>

#include "ballast/system/vector_clones.h"

namespace ballast {
namespace {

// exp(x) for x <= 0: 2^n * e^r with |r| <= log(2)/2; Taylor to r^7 leaves an error of 6e-9 in
// e^r.
inline __attribute__((always_inline)) float exp_nonpositive(float x) {
  const float clamped = x < -86.0F ? -86.0F : x;
  const float shifted =
      clamped * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: rounds to a whole number
  const float n = shifted - 12582912.0F;
  float r =
      clamped - n * 0.693359375F;  // log(2) in two parts, the first exact when multiplied by n
  r = r + n * 2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const auto exponent = static_cast<uint32_t>(std::bit_cast<int32_t>(shifted) << 23);
  const float power = std::bit_cast<float>(exponent + (uint32_t{127} << 23));
  return x < -86.0F ? 0.0F : p * power;
}

}  // namespace

// Sixteen partial results: the same order of additions on every instruction set, without fast-math.
constexpr int64_t kLanes = 16;

BALLAST_VECTOR_CLONES float vector_maximum(const float* x, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  float result = lanes[0];
  for (float lane : lanes) result = lane > result ? lane : result;
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

BALLAST_VECTOR_CLONES float vector_exponentiate(float* x, int64_t n, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      x[i + j] = exp_nonpositive(x[i + j] - shift);
      lanes[j] += x[i + j];
    }
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i] = exp_nonpositive(x[i] - shift);
  return sum;
}

}  // namespace ballast
