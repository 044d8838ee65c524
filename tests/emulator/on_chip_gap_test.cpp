// SPDX-License-Identifier: Apache-2.0
// The solver on chip with a gap allowed, on an emulated GPU: that it is kept, and told truly.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/emulator/expect_solution.h"
#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

using assignment::AssignmentStatus;
using assignment::NonFinite;

// Solves them on chip, where all is done in one launch.
std::vector<Solution> solve_within(const Problems& problems, double gap) {
  const int64_t before = counts().launches;
  std::vector<Solution> solutions = solve(problems, Solver::kExact, {.gap = gap});
  EXPECT_EQ(counts().launches - before, 1);
  return solutions;
}

void expect_fuzzed_are_within(uint64_t from, uint64_t to, int cluster_blocks) {
  for (uint64_t seed = from; seed < to && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    set({.seed = seed + 1, .cluster_blocks = cluster_blocks});
    const Problems problems = fuzzed(seed);
    const double gap = seed % 2 == 0 ? 0.001 : 0.01;
    expect_within_or_said(problems, solve_within(problems, gap), gap);
  }
}

TEST(OnChipGapEmulated, OfFuzzedProblemsIsKeptOrSaidToBeMore) {
  expect_fuzzed_are_within(20, 25, 16);
}

TEST(OnChipGapEmulated, SoItIsWhereBlocksMeetInMemory) { expect_fuzzed_are_within(30, 32, 0); }

// Scores with very many ties alone may end beyond it.
TEST(OnChipGapEmulated, OfAllOthersIsReached) {
  constexpr int kExperts[] = {2, 12, 40, 128};
  for (int sort = 0; sort < kSorts; ++sort) {
    if (sort == kThreeValues || sort == kEqualRows) continue;
    SCOPED_TRACE("sort " + std::to_string(sort));
    set({.seed = static_cast<uint64_t>(sort)});
    const int experts = kExperts[sort % 4];
    const Problems problems = problems_of(4 * experts, experts, {sort}, 7);
    expect_within(problems, solve_within(problems, 0.001), 0.001);
  }
}

TEST(OnChipGapEmulated, IsReachedFromAnyStartPrices) {
  set({});
  Problems problems = problems_of(240, 12, {kPreferred}, 5);
  const std::vector<double> right = solved_on_cpu(problems.problem(0)).prices;
  for (const double size : {right[0], 3.0, 1e20, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    SCOPED_TRACE(size);
    problems.start_prices = right;
    problems.start_prices[0] = size;
    expect_within(problems, solve_within(problems, 0.001), 0.001);
  }
}

TEST(OnChipGapEmulated, ScoresThatAreNotFiniteAreNamedOrReplaced) {
  Problems problems = odd_problems();
  set({});
  const std::vector<Solution> refused = solve_within(problems, 0.01);
  EXPECT_EQ(refused[0].status.code, AssignmentStatus::kOk);
  for (const size_t p : {1, 2}) {
    EXPECT_EQ(refused[p].status.code, AssignmentStatus::kNonFinite);
    EXPECT_EQ(refused[p].status.token, p == 1 ? 17 : 63);
    EXPECT_EQ(refused[p].status.expert, p == 1 ? 5 : 0);
    EXPECT_EQ(refused[p].result.loads, std::vector<int32_t>(8, 8));
  }
  problems.non_finite = NonFinite::kLowest;
  const std::vector<Solution> replaced = solve_within(problems, 0.01);
  for (size_t p = 0; p < replaced.size(); ++p) {
    EXPECT_EQ(replaced[p].status.code, AssignmentStatus::kOk);
    EXPECT_EQ(replaced[p].result.replaced_scores, p == 0 ? 0 : p == 1 ? 2 : 1);
    const assignment::Certificate found = certified(problems.problem(p), replaced[p].result);
    EXPECT_TRUE(found.valid);
    EXPECT_LE(found.gap, 0.01 * (found.dual - found.blind) * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace ballast::emulator
