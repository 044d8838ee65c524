// SPDX-License-Identifier: Apache-2.0
// The exact solver on chip, on an emulated GPU: that it finds the optimum, whatever the scores, the
// shape and the way in which blocks meet.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/expect_solution.h"
#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

using assignment::AssignmentStatus;
using assignment::NonFinite;

// Solves them exactly, on chip: behind that the general solver has nothing to do, but is there.
std::vector<Solution> solve_on_chip(const Problems& problems) {
  const int64_t before = counts().launches;
  std::vector<Solution> solutions = solve(problems, Solver::kExact);
  EXPECT_EQ(counts().launches - before, 2);
  return solutions;
}

void expect_fuzzed_are_optimal(uint64_t from, uint64_t to, int cluster_blocks) {
  for (uint64_t seed = from; seed < to && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    set({.seed = seed + 1, .cluster_blocks = cluster_blocks});
    const Problems problems = fuzzed(seed);
    expect_optimal(problems, solve_on_chip(problems));
  }
}

TEST(OnChipEmulated, FuzzedProblemsAreSolvedAsOnTheCpu) { expect_fuzzed_are_optimal(0, 5, 16); }

TEST(OnChipEmulated, SoAreTheyWhereBlocksMeetInMemory) { expect_fuzzed_are_optimal(9, 11, 0); }

TEST(OnChipEmulated, SixteenBlocksAreACluster) {
  if (kMostProcessors < 16) GTEST_SKIP() << "there is no room for sixteen blocks";
  set({.processors = 16});
  const Problems problems = problems_of(640, 128, {kClustered}, 1);
  expect_optimal(problems, solve_on_chip(problems));
}

TEST(OnChipEmulated, ATokenAnExpertIsEnough) {
  for (const auto& [experts, sort] : {std::pair{2, kGauss}, {33, kThreeValues}, {128, kGauss}}) {
    SCOPED_TRACE(experts);
    set({.seed = static_cast<uint64_t>(experts)});
    const Problems problems = problems_of(experts, experts, {sort}, 2);
    expect_optimal(problems, solve_on_chip(problems));
  }
}

TEST(OnChipEmulated, TwoExpertsAreEnough) {
  for (const int tokens : {62, 1030}) {
    SCOPED_TRACE(tokens);
    set({.seed = static_cast<uint64_t>(tokens)});
    const Problems problems = problems_of(tokens, 2, {kPreferred, kRounded}, 3);
    expect_optimal(problems, solve_on_chip(problems));
  }
}

TEST(OnChipEmulated, CollapsedScoresAreSolvedAsOnTheCpu) {
  for (const int experts : {24, 96}) {
    SCOPED_TRACE(experts);
    set({.seed = static_cast<uint64_t>(experts)});
    const Problems problems = problems_of(8 * experts, experts, {kCollapsed}, 4);
    expect_optimal(problems, solve_on_chip(problems));
  }
}

// Those of the optimum, and those that mean nothing.
TEST(OnChipEmulated, StartPricesDoNotMakeItWrong) {
  set({});
  Problems problems = problems_of(240, 12, {kPreferred}, 5);
  const std::vector<double> right = solved_on_cpu(problems.problem(0)).prices;
  std::vector<std::vector<double>> starts = {right};
  for (const double size : {3.0, 1e20, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    starts.push_back(right);
    for (size_t e = 0; e < right.size(); e += 2) starts.back()[e] = size;
  }
  for (const std::vector<double>& start : starts) {
    SCOPED_TRACE(start[0]);
    problems.start_prices = start;
    expect_optimal(problems, solve_on_chip(problems));
  }
}

TEST(OnChipEmulated, ScoresThatAreNotFiniteAreNamed) {
  set({});
  const std::vector<Solution> solutions = solve_on_chip(odd_problems());
  EXPECT_EQ(solutions[0].status.code, AssignmentStatus::kOk);
  for (const size_t p : {1, 2}) {
    EXPECT_EQ(solutions[p].status.code, AssignmentStatus::kNonFinite);
    EXPECT_EQ(solutions[p].status.token, p == 1 ? 17 : 63);
    EXPECT_EQ(solutions[p].status.expert, p == 1 ? 5 : 0);
    EXPECT_EQ(solutions[p].result.loads, std::vector<int32_t>(8, 8));
  }
}

TEST(OnChipEmulated, ScoresThatAreNotFiniteAreReplaced) {
  Problems problems = odd_problems();
  problems.non_finite = NonFinite::kLowest;
  set({.cluster_blocks = 0});
  const std::vector<Solution> solutions = solve_on_chip(problems);
  for (size_t p = 0; p < solutions.size(); ++p) {
    SCOPED_TRACE("problem " + std::to_string(p));
    const assignment::Assignment want = solved_on_cpu(problems.problem(p));
    EXPECT_EQ(solutions[p].status.code, AssignmentStatus::kOk);
    EXPECT_EQ(solutions[p].result.replaced_scores, want.replaced_scores);
    EXPECT_EQ(solutions[p].result.expert_of_token, want.expert_of_token);  // there is one optimum
    EXPECT_NEAR(certified(problems.problem(p), solutions[p].result).gap, 0, 1e-9 * 64);
  }
}

}  // namespace
}  // namespace ballast::emulator
