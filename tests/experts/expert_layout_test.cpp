// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::experts {
namespace {

constexpr int64_t kMatrix = 1024 * 4096;

TEST(ExpertLayout, NearlyEqualRowsAreFilledUp) {
  EXPECT_EQ(choose_layout({120, 128, 150, 130}, kMatrix), ExpertLayout::kEqualBlocks);
  EXPECT_EQ(choose_layout({3000, 3100, 2900}, kMatrix), ExpertLayout::kEqualBlocks);
}

TEST(ExpertLayout, RowsThatOnlyTheDeviceKnowsAreGrouped) {
  EXPECT_EQ(choose_layout({}, kMatrix), ExpertLayout::kGroupedRows);
}

TEST(ExpertLayout, UnequalRowsAreGrouped) {
  EXPECT_EQ(choose_layout({500, 10, 10, 30}, kMatrix), ExpertLayout::kGroupedRows);
  EXPECT_EQ(choose_layout({5000, 3000, 3000, 3000}, kMatrix), ExpertLayout::kGroupedRows);
}

TEST(ExpertLayout, FewRowsAreFilledUpWhateverTheirShares) {
  EXPECT_EQ(choose_layout({200, 0, 0, 8}, kMatrix), ExpertLayout::kEqualBlocks);
}

TEST(ExpertLayout, EqualBlocksAreThoseTheHostKnows) {
  EXPECT_TRUE(has_equal_blocks({3, 3}));
  EXPECT_FALSE(has_equal_blocks({3, 4}));
  EXPECT_FALSE(has_equal_blocks(ExpertRows(at::tensor({3, 6}, at::kInt))));
}

TEST(ExpertLayout, CountsAreWaitedForWhereProductsAreLarge) {
  const ExpertRows rows(at::tensor({3, 3, 10}, at::kInt));
  EXPECT_TRUE(with_counts_if_worth(rows, 10, kMatrix).counts.empty());
  const ExpertRows known = with_counts_if_worth(rows, 100'000, kMatrix);
  EXPECT_EQ(known.counts, (std::vector<int64_t>{3, 0, 7}));
  EXPECT_TRUE(known.ends.is_same(rows.ends));
}

TEST(ExpertLayout, ABlockHoldsTheMostRowsOfAnExpert) {
  EXPECT_EQ(rows_of_block({1, 16, 3}), 16);
  EXPECT_EQ(rows_of_block({1, 17, 3}), 32);
  EXPECT_EQ(rows_of_block({0, 0}), 0);
}

}  // namespace
}  // namespace ballast::experts
