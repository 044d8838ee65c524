// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast {
namespace {

TEST(RandomStream, IsAFunctionOfItsKeyAlone) {
  RandomStream a(7, "test", 1, 2), b(7, "test", 1, 2), other(7, "test", 2, 1);
  const uint64_t first = a.bits();
  EXPECT_EQ(first, b.bits());
  EXPECT_NE(first, other.bits());
  EXPECT_NE(first, RandomStream(7, "toast", 1, 2).bits());
}

TEST(RandomStream, NormalHasUnitMoments) {
  RandomStream random(3, "moments");
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  // Five standard errors of the mean and of the variance.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
}

TEST(RandomStream, BelowIsUniform) {
  RandomStream random(5, "below");
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000));
}

}  // namespace
}  // namespace ballast
