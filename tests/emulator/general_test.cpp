// SPDX-License-Identifier: Apache-2.0
// The exact solver for all problems, on an emulated GPU: what is not solved on chip.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/expect_solution.h"
#include "tests/emulator/problems.h"
#include "tests/support/error_of.h"

namespace ballast::emulator {
namespace {

using assignment::AssignmentStatus;

// Uneven shares, padding, start prices, scores of every awkward sort.
TEST(GeneralEmulated, FuzzedProblemsAreSolvedAsOnTheCpu) {
  for (uint64_t i = 0; i < 25 && !testing::Test::HasFailure(); ++i) {
    const Problems problems = problems_of(test::ProblemMaker(1, i, 150, 20).make());
    SCOPED_TRACE("problem " + std::to_string(i));
    set({.seed = i + 1});
    expect_optimal(problems, solve(problems, Solver::kExact));
  }
}

// Of several blocks, which meet in memory.
TEST(GeneralEmulated, LargerProblemsAreSolvedAsOnTheCpu) {
  for (const auto& [tokens, experts] : {std::pair{1001, 33}, {300, 140}}) {
    SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts));
    set({.seed = static_cast<uint64_t>(tokens)});
    const Problems problems = problems_of(tokens, experts, {kClustered}, 1);
    expect_optimal(problems, solve(problems, Solver::kExact));
  }
}

TEST(GeneralEmulated, EqualSharesAreSolvedAsOnTheCpu) {
  for (uint64_t seed = 0; seed < 3 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    set({.seed = seed + 1});
    const Problems problems = fuzzed(40 + seed);
    expect_optimal(problems, solve(problems, Solver::kGeneral));
  }
}

// Padding fills what is left, whatever its scores are.
TEST(GeneralEmulated, PaddingDoesNotCount) {
  set({});
  Problems problems = problems_of(120, 8, {kGauss, kPreferred}, 2);
  for (int t = 0; t < 2 * 120; ++t) problems.counted.push_back(t % 3 == 0 ? 0 : 1);
  expect_optimal(problems, solve(problems, Solver::kExact));
}

TEST(GeneralEmulated, AGapIsKept) {
  for (const double gap : {0.001, 0.01}) {
    SCOPED_TRACE(gap);
    set({});
    const Problems problems = problems_of(203, 11, {kGauss, kPreferred, kClustered}, 3);
    expect_within(problems, solve(problems, Solver::kExact, {.gap = gap}), gap);
  }
}

TEST(GeneralEmulated, ForbiddenPairsAreAvoidedOrSaidToBeInTheWay) {
  int possible = 0;
  for (uint64_t i = 0; i < 15; ++i) {
    SCOPED_TRACE("problem " + std::to_string(i));
    set({.seed = i + 1});
    const Problems problems = problems_of(test::ProblemMaker(2, i, 60, 10).make_with_forbidden());
    const Solution solution = solve(problems, Solver::kExact)[0];
    const std::string on_cpu = test::error_of([&] { solved_on_cpu(problems.problem(0)); });
    if (on_cpu == "no error") {
      ++possible;
      expect_optimal(problems, {solution});
    } else {
      EXPECT_EQ(solution.status.code, AssignmentStatus::kInfeasible) << on_cpu;
      EXPECT_EQ(solution.status.valid, 0);
    }
  }
  EXPECT_GT(possible, 3);
}

}  // namespace
}  // namespace ballast::emulator
