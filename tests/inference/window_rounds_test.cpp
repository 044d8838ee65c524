// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/window_rounds.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

// The batches, by their first window, with their sizes.
std::map<uint64_t, uint64_t> batches_of(const batches::EvalWindows& windows,
                                        const WindowChoice& choice, int workers) {
  std::map<uint64_t, uint64_t> batches;
  uint64_t told = 0;
  for (int rank = 0; rank < workers; ++rank) {
    const WindowRounds rounds(windows, choice, {rank, workers});
    for (uint64_t round = 0; round < rounds.size(); ++round) {
      const WindowRounds::Taken taken = rounds.take(round);
      if (rank == 0) told += rounds.windows_of(round);
      const bool is_new = taken.count == 0 || batches.emplace(taken.first, taken.count).second;
      EXPECT_TRUE(is_new) << "the batch of window " << taken.first << " was taken already";
      EXPECT_EQ(taken.batch.rows, taken.count > 0 ? static_cast<int64_t>(taken.count) : 1);
      const auto counted =
          std::ranges::count_if(taken.batch.targets, [](int64_t target) { return target >= 0; });
      EXPECT_EQ(counted > 0, taken.count > 0) << "an idle worker's batch counts nothing";
    }
    EXPECT_EQ(rounds.size(), WindowRounds(windows, choice, {0, workers}).size());
  }
  EXPECT_EQ(told, WindowRounds(windows, choice, {0, workers}).windows());
  return batches;
}

TEST(WindowRounds, AnyNumberOfWorkersTakesTheSameBatchesOnce) {
  const batches::EvalWindows windows(test::random_tokens(70, 9), 4, 4);  // 18
  for (const int64_t batch : {1, 4, 5, 30}) {
    for (const uint64_t most : {0, 7, 18, 40}) {
      const WindowChoice choice{batch, most};
      const auto alone = batches_of(windows, choice, 1);
      uint64_t sum = 0;
      for (const auto& [first, count] : alone) sum += count;
      EXPECT_EQ(sum, most == 7 ? 7U : 18U);
      for (const int workers : {2, 3, 8, 25}) {
        EXPECT_EQ(batches_of(windows, choice, workers), alone)
            << workers << " workers, batches of " << batch << ", at most " << most;
      }
    }
  }
}

// Which windows are taken depends on what lies together alone, not on how it is cut into batches.
TEST(WindowRounds, SmallerBatchesOfWhatLiesTogetherTakeTheSameWindows) {
  const batches::EvalWindows windows(test::random_tokens(400, 9), 4, 4);  // 100
  const auto taken = [&](int64_t batch, int workers) {
    std::set<uint64_t> all;
    const WindowChoice choice{.batch = batch, .max_windows = 20, .together = 8};
    for (const auto& [first, count] : batches_of(windows, choice, workers))
      for (uint64_t i = 0; i < count; ++i) all.insert(first + i);
    return all;
  };
  const auto whole = taken(8, 1);
  EXPECT_EQ(whole.size(), 20U);
  EXPECT_GT(*whole.rbegin(), 80U) << "spread over the source";
  for (const auto& [batch, workers] : {std::pair(4, 2), {2, 4}, {1, 8}, {2, 1}})
    EXPECT_EQ(taken(batch, workers), whole) << "batches of " << batch;
}

}  // namespace
}  // namespace ballast::inference
