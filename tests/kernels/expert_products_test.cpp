// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr int64_t kMatrix = 1024 * 4096;

TEST(ProductWay, NearlyEqualRowsAreFilledUp) {
  EXPECT_EQ(choose_product_way({120, 128, 150, 130}, kMatrix), ProductWay::kPadded);
  EXPECT_EQ(choose_product_way({3000, 3100, 2900}, kMatrix), ProductWay::kPadded);
}

TEST(ProductWay, RowsThatOnlyTheDeviceKnowsAreGrouped) {
  EXPECT_EQ(choose_product_way({}, kMatrix), ProductWay::kGrouped);
}

TEST(ProductWay, UnequalRowsAreGroupedUnlessEachExpertHasMany) {
  EXPECT_EQ(choose_product_way({500, 10, 10, 30}, kMatrix), ProductWay::kGrouped);
  EXPECT_EQ(choose_product_way({5000, 3000, 3000, 3000}, kMatrix), ProductWay::kEach);
}

TEST(ProductWay, FewRowsAreFilledUpWhateverTheirShares) {
  EXPECT_EQ(choose_product_way({200, 0, 0, 8}, kMatrix), ProductWay::kPadded);
}

TEST(ProductWay, CountsAreWaitedForWhereProductsAreLarge) {
  const ExpertRows rows(at::tensor({3, 3, 10}, at::kInt));
  EXPECT_TRUE(with_counts_if_worth(rows, 10, kMatrix).counts.empty());
  const ExpertRows known = with_counts_if_worth(rows, 100'000, kMatrix);
  EXPECT_EQ(known.counts, (std::vector<int64_t>{3, 0, 7}));
  EXPECT_TRUE(known.ends.is_same(rows.ends));
}

TEST(ProductWay, ABlockHoldsTheMostRowsOfAnExpert) {
  EXPECT_EQ(rows_of_block({1, 16, 3}), 16);
  EXPECT_EQ(rows_of_block({1, 17, 3}), 32);
  EXPECT_EQ(rows_of_block({0, 0}), 0);
}

}  // namespace
}  // namespace ballast
