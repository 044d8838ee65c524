// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/window_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

// The windows of each batch.
std::set<std::vector<uint64_t>> batches_of(const batches::EvalWindows& windows,
                                           const WindowChoice& choice, int workers) {
  std::set<std::vector<uint64_t>> batches;
  uint64_t told = 0;
  for (int rank = 0; rank < workers; ++rank) {
    const WindowRounds rounds(windows, choice, {rank, workers});
    for (uint64_t round = 0; round < rounds.size(); ++round) {
      const WindowRounds::Taken taken = rounds.take(round);
      if (rank == 0) told += rounds.windows_of(round);
      EXPECT_TRUE(taken.windows.empty() || batches.insert(taken.windows).second)
          << "the batch of window " << taken.windows.front() << " was taken already";
      EXPECT_EQ(taken.batch.rows, std::max<int64_t>(1, std::ssize(taken.windows)));
      const auto counted =
          std::ranges::count_if(taken.batch.targets, [](int64_t target) { return target >= 0; });
      EXPECT_EQ(counted > 0, !taken.windows.empty()) << "an idle worker's batch counts nothing";
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
      for (const std::vector<uint64_t>& batch_windows : alone) sum += batch_windows.size();
      EXPECT_EQ(sum, most == 7 ? 7U : 18U);
      for (const int workers : {2, 3, 8, 25}) {
        EXPECT_EQ(batches_of(windows, choice, workers), alone)
            << workers << " workers, batches of " << batch << ", at most " << most;
      }
    }
  }
}

std::vector<uint64_t> windows_taken(const batches::EvalWindows& windows, const WindowChoice& choice,
                                    int workers) {
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& batch : batches_of(windows, choice, workers))
    all.insert(all.end(), batch.begin(), batch.end());
  std::ranges::sort(all);
  return all;
}

TEST(WindowRounds, WhichWindowsAreTakenDependsOnTheirNumberAlone) {
  const batches::EvalWindows windows(test::random_tokens(400, 9), 4, 4);  // 100
  const auto whole = windows_taken(windows, {.batch = 8, .max_windows = 20}, 1);
  EXPECT_EQ(std::set(whole.begin(), whole.end()).size(), 20U);
  for (const auto& [batch, workers] : {std::pair(4, 2), {2, 4}, {1, 8}, {2, 1}})
    EXPECT_EQ(windows_taken(windows, {.batch = batch, .max_windows = 20}, workers), whole)
        << "batches of " << batch;
}

// Of a source that is ordered by domain, each domain gets its share but for a part of one window.
TEST(WindowRounds, EveryDomainGetsItsShare) {
  const batches::EvalWindows windows(test::random_tokens(4000, 9), 4, 4);
  const uint64_t all = windows.size();
  for (const uint64_t wanted : {6, 7, 64, 400, 999}) {
    const auto taken = windows_taken(windows, {.batch = 8, .max_windows = wanted}, 1);
    ASSERT_EQ(taken.size(), wanted);
    for (const uint64_t domains : {2, 5, 6}) {
      for (uint64_t domain = 0; domain < domains; ++domain) {
        const uint64_t begin = domain * all / domains, end = (domain + 1) * all / domains;
        const auto count = std::ranges::count_if(
            taken, [&](uint64_t window) { return window >= begin && window < end; });
        EXPECT_NEAR(static_cast<double>(count),
                    static_cast<double>(wanted * (end - begin)) / static_cast<double>(all), 1)
            << "domain " << domain << " of " << domains << ", " << wanted << " windows";
        EXPECT_GT(count, 0);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::inference
