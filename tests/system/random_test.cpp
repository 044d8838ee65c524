// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast {
namespace {

TEST(IndexPermutation, VisitsEveryIndexOnceForAnySize) {
  for (uint64_t size : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    const IndexPermutation permutation(size, 42);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t j = permutation(i);
      ASSERT_LT(j, size);
      ASSERT_FALSE(seen[j]) << "size " << size << " index " << i;
      seen[j] = true;
    }
  }
}

TEST(IndexPermutation, DiffersByKeyAndLooksShuffled) {
  const uint64_t size = 10000;
  const IndexPermutation first(size, 1), second(size, 2);
  int fixed = 0, same = 0;
  for (uint64_t i = 0; i < size; ++i) {
    fixed += first(i) == i;
    same += first(i) == second(i);
  }
  // A random permutation has one fixed point on average; 12 or more has probability under 1e-8.
  EXPECT_LT(fixed, 12);
  EXPECT_LT(same, 12);
}

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
