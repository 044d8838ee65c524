// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::kernels {

// Loops over fp32 arrays that the compiler turns into AVX-512, AVX2 or plain code; the processor's
// best is chosen when the library is loaded.

float vector_maximum(const float* x, int64_t n);
// x <- exp(x - shift), returns the sum. REQUIRES: x - shift <= 0. Relative error under 2e-7;
// results under 1e-37 become 0.
float vector_exponentiate(float* x, int64_t n, float shift);

// The sum of a x b.
float vector_dot(const float* a, const float* b, int64_t n);

// Rows `stride` apart in memory.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  T* row(int64_t i) const { return data + i * stride; }
  Rows from(int64_t i) const { return {row(i), stride}; }
};
// to [columns, rows] <- from [rows, columns]. REQUIRES: 8 divides both.
void vector_transpose(Rows<const float> from, int64_t rows, int64_t columns, Rows<float> to);

// Scores of kColumns positions by the keys up to the last of them: [rows, kColumns], whose column i
// is the position of row rows - kColumns + i and sees the rows up to that one.
inline constexpr int64_t kColumns = 32;
struct ScoreColumns {
  float *scores, *gradients;  // [rows, kColumns]
  int64_t rows;
  float scale;
};
// scores <- softmax of the columns, 0 where not seen. gradients: by the softmax on entry, by the
// scores on return. mean: the sum of softmax x gradient of each column.
void softmax_columns_backward(const ScoreColumns& x, const float* logsumexp, const float* mean);

}  // namespace ballast::kernels
