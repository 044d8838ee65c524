// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast::kernels {
namespace {

TEST(VectorMath, ExponentialIsAccurateOverItsWholeRange) {
  std::vector<float> x;
  for (float value = 0; value > -86; value -= 0.00371F) x.push_back(value);
  x.push_back(0);
  std::vector<float> y = x;
  double expected_sum = 0;
  const float sum = vector_exponentiate(y.data(), static_cast<int64_t>(y.size()), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    expected_sum += expected;
    ASSERT_LT(std::abs(y[i] - expected) / expected, 2e-7) << x[i];
  }
  EXPECT_NEAR(sum / expected_sum, 1, 1e-5);
}

TEST(VectorMath, ExponentialOfVeryNegativeNumbersIsZero) {
  std::vector<float> x(40, -1e30F);
  x[7] = -INFINITY;
  x[39] = 0;
  EXPECT_EQ(vector_exponentiate(x.data(), 40, 0), 1);
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(x[7], 0);
}

TEST(VectorMath, MaximumLooksAtEveryElement) {
  for (int64_t n = 1; n < 70; ++n) {
    for (int64_t place = 0; place < n; ++place) {
      std::vector<float> x(n, -5);
      x[place] = -1;
      ASSERT_EQ(vector_maximum(x.data(), n), -1) << n << " " << place;
    }
  }
}

TEST(VectorMath, TransposesAndMultipliesRowsThatLieApart) {
  std::vector<float> from(24 * 20), to(16 * 30, -1.0F);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  vector_transpose({from.data(), 20}, 24, 16, {to.data(), 30});
  for (size_t i = 0; i < 24; ++i) {
    for (size_t j = 0; j < 16; ++j) ASSERT_EQ(to[j * 30 + i], from[i * 20 + j]) << i << " " << j;
  }
  EXPECT_EQ(to[24], -1) << "what lies between stays";
  for (int64_t n : {0, 1, 15, 16, 17, 40}) {
    float sum = 0;  // of whole numbers: exact in any order
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) sum += from[i] * from[i + 1];
    EXPECT_EQ(vector_dot(from.data(), from.data() + 1, n), sum) << n;
  }
}

}  // namespace
}  // namespace ballast::kernels
