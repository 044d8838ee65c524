// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/dispatch.h"

#include <gtest/gtest.h>

#include "ballast/experts/chunked_dispatch.h"
#include "ballast/experts/expert_ranks.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/lone_worker.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// Two choices of each of 9 tokens among 4 experts; 4 is none.
Tensor choices() {
  const Tensor first = at::tensor({0, 1, 2, 3, 0, 0, 2, 1, 0}, at::kLong);
  return at::stack({first, at::tensor({1, 4, 0, 4, 3, 4, 1, 2, 1}, at::kLong)});
}

TEST(Dispatch, ByCountsSortsChoicesByExpert) {
  const Dispatch dispatch =
      dispatch_by_counts(test::lone_worker(), 4, choices(), {"expert counts"});
  EXPECT_EQ(dispatch.rows_of_expert.counts, std::vector<int64_t>({5, 5, 3, 2}));
  // Of each expert first choices, then second ones, by token.
  const Tensor expected = at::tensor({0, 4, 5, 8, 2, 1, 7, 0, 6, 8, 2, 6, 7, 3, 4}, at::kLong);
  EXPECT_TRUE(at::equal(dispatch.way.row_of_slot, expected));
  EXPECT_EQ(dispatch.way.slot_of_row[1][1].item<int64_t>(), -1);
  for (int64_t t = 0; t < 9; ++t) {
    for (int64_t k = 0; k < 2; ++k) {
      const auto slot = dispatch.way.slot_of_row[t][k].item<int64_t>();
      if (slot < 0) continue;
      EXPECT_EQ(expected[slot].item<int64_t>(), t);
    }
  }
}

TEST(Dispatch, UncountedIsTheSameWithRowsOfZerosForNone) {
  const Dispatch counted = dispatch_by_counts(test::lone_worker(), 4, choices(), {"counts"});
  const Dispatch uncounted = dispatch_uncounted(4, choices());
  EXPECT_TRUE(at::equal(uncounted.way.slot_of_row, counted.way.slot_of_row));
  EXPECT_TRUE(at::equal(uncounted.way.row_of_slot.narrow(0, 0, 15), counted.way.row_of_slot));
  EXPECT_TRUE(uncounted.way.row_of_slot.narrow(0, 15, 3).eq(-1).all().item<bool>());
  EXPECT_TRUE(uncounted.rows_of_expert.counts.empty()) << "the host does not know";
  EXPECT_EQ(uncounted.rows_of_expert.counts_on_host(), std::vector<int64_t>({5, 5, 3, 5}));
}

TEST(Dispatch, BlocksAreAsManyRowsForEachExpert) {
  const BlockSlots slots =
      block_slots(choices().t(), {.experts = 4, .groups = 3, .block = 2});  // of 3 tokens each
  const Dispatch dispatch = dispatch_blocks({.experts = 4}, slots.slot_of_row, slots.row_of_slot);
  EXPECT_EQ(dispatch.rows_of_expert.counts, std::vector<int64_t>({6, 6, 6, 6}));
  EXPECT_EQ(dispatch.way.send, comm::RowsOfWorker({24}));
  EXPECT_EQ(dispatch.way.receive, comm::RowsOfWorker({24}));
}

// 8 slots of 4 experts on 2 workers, the last of them empty; 2 blocks of 1 and 1 row, so that more
// chunks than rows are as many as rows.
TEST(Dispatch, InChunksEachHasItsPartOfEveryBlock) {
  const Tensor row_of_slot = at::tensor({3, 0, 6, 1, 2, 5, 4, -1}, at::kLong);
  const Tensor slot_of_row = at::tensor({1, 3, 4, 0, 6, 5, 2, -1}, at::kLong);
  const ExpertPlaces places{.experts = 4, .workers = 2};
  const Dispatch dispatch = dispatch_blocks(places, slot_of_row, row_of_slot);
  const ChunkedDispatch chunked = in_chunks(places, dispatch, 5);
  ASSERT_EQ(chunked.chunks.size(), 2U);
  for (const ChunkedDispatch::Chunk& chunk : chunked.chunks) {
    EXPECT_EQ(chunk.rows, 4);
    EXPECT_EQ(chunk.rows_of_expert.counts, std::vector<int64_t>({2, 2}));  // of both workers
  }
  const RowExchange& way = chunked.whole.way;
  EXPECT_TRUE(at::equal(way.row_of_slot, at::tensor({3, 6, 2, 4, 0, 1, 5, -1}, at::kLong)));
  for (int64_t row = 0; row < 7; ++row) {
    const auto slot = way.slot_of_row[row].item<int64_t>();
    EXPECT_EQ(way.row_of_slot[slot].item<int64_t>(), row);
  }
  EXPECT_EQ(way.slot_of_row[7].item<int64_t>(), -1);
}

}  // namespace
}  // namespace ballast::experts
