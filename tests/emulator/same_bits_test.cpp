// SPDX-License-Identifier: Apache-2.0
// Our CUDA solvers on emulated GPUs: that nothing but the problems makes a difference, to the bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

// As one order of threads gives them, so others do, whatever is in memory that nobody wrote.
void expect_same_in_any_order(const Problems& problems, Solver solver, double gap,
                              Setting setting) {
  std::vector<Solution> first;
  constexpr unsigned char kPoisons[] = {0xff, 0x00, 0x5a};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("gap " + std::to_string(gap) + ", seed " + std::to_string(seed));
    setting.seed = seed;
    setting.poison = kPoisons[seed - 1];
    set(setting);
    const std::vector<Solution> solutions = solve(problems, solver, {.gap = gap});
    if (seed == 1) first = solutions;
    EXPECT_TRUE(solutions == first);
  }
}

// Shapes and scores that go through different parts.
std::vector<Problems> problems_on_chip() {
  return {problems_of(192, 24, {kRounded}, 1), problems_of(96, 48, {kClustered}, 2)};
}

TEST(SameBitsEmulated, OnChipInAnyOrderOfThreads) {
  for (const Problems& problems : problems_on_chip())
    expect_same_in_any_order(problems, Solver::kExact, 0, {});
}

TEST(SameBitsEmulated, OnChipWithAGapAllowed) {
  for (const Problems& problems : problems_on_chip())
    expect_same_in_any_order(problems, Solver::kExact, 0.001, {});
}

TEST(SameBitsEmulated, OnChipWhereBlocksMeetInMemory) {
  const Problems problems = problems_on_chip()[0];
  for (const double gap : {0.0, 0.001})
    expect_same_in_any_order(problems, Solver::kExact, gap, {.cluster_blocks = 0});
}

TEST(SameBitsEmulated, InGeneral) {
  const Problems problems = problems_of(203, 21, {kGauss, kRounded}, 3);
  for (const double gap : {0.0, 0.01})
    expect_same_in_any_order(problems, Solver::kGeneral, gap, {});
}

TEST(SameBitsEmulated, OfAuctionAndGreedy) {
  const Problems problems = problems_of(48, 6, {kRounded}, 4);
  for (const Solver solver : {Solver::kAuction, Solver::kGreedy})
    expect_same_in_any_order(problems, solver, 0, {});
}

// Blocks of problems that are solved one after another are those that are solved side by side.
TEST(SameBitsEmulated, OfAsManyBlocksOnAnyNumberOfProcessors) {
  const Problems problems = problems_of(90, 6, {kGauss, kPreferred}, 5);
  struct Place {
    Solver solver;
    int cluster_blocks;
    std::vector<int> processors;
  };
  const std::vector<Place> places = {{Solver::kExact, 4, {4, 8}},
                                     {Solver::kExact, 0, {8, kMostProcessors}},
                                     {Solver::kGeneral, 0, {1, 2}}};
  for (const Place& place : places) {
    std::vector<Solution> first;
    for (const int processors : place.processors) {
      SCOPED_TRACE(processors);
      set({.processors = processors, .cluster_blocks = place.cluster_blocks});
      const std::vector<Solution> solutions = solve(problems, place.solver);
      if (first.empty()) first = solutions;
      EXPECT_TRUE(solutions == first);
    }
  }
}

// Where there is one optimum, any number of blocks finds that.
TEST(SameBitsEmulated, OfTheOptimumByAnyNumberOfBlocks) {
  const Problems problems = problems_of(640, 80, {kGauss}, 6);
  std::vector<int32_t> first;
  for (const int processors : {4, 8, kMostProcessors}) {
    for (const int cluster_blocks : {16, 0}) {
      if (processors == 4 && cluster_blocks == 0) continue;  // a team at a desk is larger
      SCOPED_TRACE(std::to_string(processors) + " processors");
      set({.processors = processors, .cluster_blocks = cluster_blocks});
      const Solution solution = solve(problems, Solver::kExact)[0];
      if (first.empty()) first = solution.result.expert_of_token;
      EXPECT_EQ(solution.result.expert_of_token, first);
    }
  }
}

}  // namespace
}  // namespace ballast::emulator
