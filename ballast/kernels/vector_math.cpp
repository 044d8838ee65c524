// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/vector_math.h"

#include <bit>
#include <cstring>
#include <limits>

#include "ballast/system/vector_clones.h"

namespace ballast::kernels {
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

BALLAST_VECTOR_CLONES float vector_dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

namespace {

using Eight = float __attribute__((vector_size(32)));

// Rows 0 to 7 of a block of 8 x 8 become its columns, in three rounds of pairs.
inline __attribute__((always_inline)) void transpose_block(Rows<const float> from, Rows<float> to) {
  Eight a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], from.row(i), sizeof(Eight));
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    a[i + 2] = __builtin_shufflevector(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 3] = __builtin_shufflevector(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to.row(i), &b[i], sizeof(Eight));
}

}  // namespace

BALLAST_VECTOR_CLONES void vector_transpose(Rows<const float> from, int64_t rows, int64_t columns,
                                            Rows<float> to) {
  for (int64_t i = 0; i < rows; i += 8) {
    for (int64_t j = 0; j < columns; j += 8)
      transpose_block({from.row(i) + j, from.stride}, {to.row(j) + i, to.stride});
  }
}

BALLAST_VECTOR_CLONES void softmax_columns_backward(const ScoreColumns& x, const float* logsumexp,
                                                    const float* mean) {
  const int64_t whole = x.rows - kColumns;
  const float scale = x.scale;
  for (int64_t j = 0; j < x.rows; ++j) {
    float* const score = x.scores + j * kColumns;
    float* const gradient = x.gradients + j * kColumns;
    const auto first = static_cast<int32_t>(j - whole);
    for (int32_t i = 0; i < kColumns; ++i) {
      const float power = score[i] * scale - logsumexp[i];
      // Rounding may leave a little above 0 where one key has it all.
      const float weight = i < first ? 0.0F : exp_nonpositive(power > 0 ? 0.0F : power);
      score[i] = weight;
      gradient[i] = weight * (gradient[i] - mean[i]) * scale;
    }
  }
}

}  // namespace ballast::kernels
