// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>

namespace ballast::batches {
namespace {

Batch numbered(uint64_t i) {
  return {.rows = static_cast<int64_t>(i), .context = 1, .inputs = {}, .targets = {}};
}

TEST(Prefetcher, GivesAllBatchesInOrder) {
  for (const size_t depth : {0, 1, 2, 50}) {
    Prefetcher batches(numbered, 20, depth);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(batches.next().rows, i);
    EXPECT_THROW(batches.next(), std::out_of_range);
  }
}

TEST(Prefetcher, StaysAtMostItsDepthAhead) {
  std::atomic<uint64_t> made = 0, taken = 0, furthest = 0;
  {
    Prefetcher batches(
        [&](uint64_t i) {
          furthest = std::max<uint64_t>(furthest, i - std::min<uint64_t>(i, taken));
          ++made;
          return numbered(i);
        },
        1000, 3);
    for (; taken < 500; ++taken) batches.next();
  }
  EXPECT_LE(furthest, 4u);  // three ready and the one being made
  EXPECT_LE(made, 504u);
}

TEST(Prefetcher, GivesWhatIsReadyWithoutWaiting) {
  std::atomic<bool> may_make = false;
  Prefetcher batches(
      [&](uint64_t i) {
        while (!may_make) std::this_thread::yield();
        if (i == 2) throw std::runtime_error("damaged");
        return numbered(i);
      },
      3, 8);
  EXPECT_FALSE(batches.next_if_ready().has_value());
  may_make = true;
  EXPECT_EQ(batches.next().rows, 0);
  std::optional<Batch> second;
  while (!(second = batches.next_if_ready())) std::this_thread::yield();
  EXPECT_EQ(second->rows, 1);
  EXPECT_THROW(batches.next(), std::runtime_error);
  EXPECT_FALSE(batches.next_if_ready().has_value()) << "what was thrown is for those who wait";
  Prefetcher none(numbered, 0);
  EXPECT_FALSE(none.next_if_ready().has_value());
}

TEST(Prefetcher, PassesOnWhatWasThrownAfterTheBatchesBeforeIt) {
  Prefetcher batches(
      [](uint64_t i) {
        if (i == 3) throw std::runtime_error("damaged");
        return numbered(i);
      },
      10, 8);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(batches.next().rows, i);
  EXPECT_THROW(batches.next(), std::runtime_error);
  EXPECT_THROW(batches.next(), std::runtime_error);
}

TEST(Prefetcher, StopsWithoutBeingAsked) {
  for (int i = 0; i < 200; ++i) {
    Prefetcher batches(numbered, 1'000'000, 2);
    for (int j = 0; j < i % 4; ++j) batches.next();
  }
}

TEST(Prefetcher, HasNothingToGiveOfNothing) {
  Prefetcher batches([](uint64_t) -> Batch { throw std::logic_error("never called"); }, 0);
  EXPECT_THROW(batches.next(), std::out_of_range);
}

}  // namespace
}  // namespace ballast::batches
