// SPDX-License-Identifier: Apache-2.0
// How much the solver on chip does, counted on an emulated GPU: most of its time there threads of a
// block, or blocks of a team, wait for each other. Bounds are one and a half of the most that four
// seeds took: work that doubles is noticed, what a seed draws is not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

struct Work {
  int tokens, experts;
  Sort sort;
  double gap;
  int64_t block_meetings, team_meetings;  // at most
};

void expect_no_more(const Work& work, uint64_t seed, int cluster_blocks) {
  SCOPED_TRACE(std::to_string(work.tokens) + " x " + std::to_string(work.experts) + ", sort " +
               std::to_string(work.sort) + ", gap " + std::to_string(work.gap) + ", seed " +
               std::to_string(seed));
  set({.seed = seed, .cluster_blocks = cluster_blocks});
  solve(problems_of(work.tokens, work.experts, {work.sort}, seed), Solver::kExact,
        {.gap = work.gap});
  EXPECT_EQ(counts().launches, work.gap > 0 ? 1 : 2);
  EXPECT_LE(counts().block_meetings, work.block_meetings);
  EXPECT_LE(counts().team_meetings, work.team_meetings);
}

TEST(OnChipWorkEmulated, OfExactOnesIsAsBefore) {
  constexpr Work kWork[] = {
      {2048, 32, kGauss, 0, 1330, 33},     {512, 128, kGauss, 0, 1180, 29},
      {2048, 32, kClustered, 0, 1455, 33}, {512, 128, kClustered, 0, 1550, 41},
      {2048, 32, kCollapsed, 0, 4280, 87}, {512, 128, kCollapsed, 0, 4170, 102}};
  for (const Work& work : kWork) expect_no_more(work, 1, 16);
}

TEST(OnChipWorkEmulated, WithAGapAllowedIsAsBefore) {
  constexpr Work kWork[] = {{2048, 32, kGauss, 0.001, 730, 18},
                            {512, 128, kGauss, 0.001, 1815, 44},
                            {512, 128, kGauss, 0.01, 725, 20},
                            {2048, 32, kClustered, 0.001, 1056, 26},
                            {512, 128, kClustered, 0.001, 2470, 60}};
  for (const Work& work : kWork) {
    for (const uint64_t seed : {1, 2}) expect_no_more(work, seed, 16);
  }
}

// Prices that went to and fro between two temperatures, or by steps that were cut, until all passes
// were used: 127 and more meetings of the team.
TEST(OnChipWorkEmulated, OfSeparatedTokensIsBounded) {
  for (const uint64_t seed : {32, 71, 73, 111})
    expect_no_more({512, 32, kSeparated, 0.001, 4150, 96}, seed, 16);
}

TEST(OnChipWorkEmulated, OfBlocksThatMeetInMemoryIsAsBefore) {
  constexpr Work kWork[] = {{2048, 32, kGauss, 0, 1900, 32},
                            {512, 128, kGauss, 0, 1600, 24},
                            {2048, 32, kGauss, 0.001, 1020, 17},
                            {512, 128, kGauss, 0.001, 2510, 39}};
  for (const Work& work : kWork) expect_no_more(work, 1, 0);
}

TEST(OnChipWorkEmulated, OfTheGeneralSolverIsAsBefore) {
  set({});
  solve(problems_of(2048, 32, {kGauss}, 1), Solver::kGeneral);
  EXPECT_EQ(counts().launches, 1);
  EXPECT_LE(counts().block_meetings, 3400);
  EXPECT_LE(counts().team_meetings, 29);
}

}  // namespace
}  // namespace ballast::emulator
