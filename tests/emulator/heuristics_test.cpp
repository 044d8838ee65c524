// SPDX-License-Identifier: Apache-2.0
// The auction and the greedy solver on an emulated GPU, against those of the CPU.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/expect_solution.h"
#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

using assignment::SolverKind;

TEST(HeuristicsEmulated, TheAuctionGoesAsOnTheCpu) {
  for (const auto& [tokens, experts] : {std::pair{256, 8}, {96, 32}}) {
    SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts));
    set({.seed = static_cast<uint64_t>(tokens)});
    const Problems problems = problems_of(tokens, experts, {kGauss}, 1);
    const std::vector<Solution> solutions = solve(problems, Solver::kAuction);
    for (size_t p = 0; p < solutions.size(); ++p) {
      const auto want = solved_on_cpu(problems.problem(p), SolverKind::kAuction);
      expect_true(problems.problem(p), solutions[p]);
      EXPECT_EQ(solutions[p].result.expert_of_token, want.expert_of_token);
      EXPECT_EQ(solutions[p].result.prices, want.prices);
    }
  }
}

// Uneven shares, padding, scores of every awkward sort.
TEST(HeuristicsEmulated, TheAuctionOfFuzzedProblemsIsValidAndTrue) {
  for (uint64_t i = 0; i < 6 && !testing::Test::HasFailure(); ++i) {
    const Problems problems = problems_of(test::ProblemMaker(3, i, 100, 12).make());
    SCOPED_TRACE("problem " + std::to_string(i));
    set({.seed = i + 1});
    const Solution solution = solve(problems, Solver::kAuction)[0];
    expect_true(problems.problem(0), solution);
    test::expect_valid(problems.problem(0), solution.result, "");
  }
}

TEST(HeuristicsEmulated, GreedyIsAsOnTheCpu) {
  for (uint64_t i = 0; i < 12 && !testing::Test::HasFailure(); ++i) {
    const Problems problems = problems_of(test::ProblemMaker(4, i, 100, 12).make());
    SCOPED_TRACE("problem " + std::to_string(i));
    set({.seed = i + 1});
    const Solution solution = solve(problems, Solver::kGreedy)[0];
    const auto want = solved_on_cpu(problems.problem(0), SolverKind::kGreedy);
    expect_true(problems.problem(0), solution);
    EXPECT_EQ(solution.result.expert_of_token, want.expert_of_token);
    EXPECT_EQ(solution.result.prices, want.prices);
  }
}

}  // namespace
}  // namespace ballast::emulator
