// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/index_permutation.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
