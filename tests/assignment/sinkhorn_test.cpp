// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/sinkhorn.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ballast/system/random.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"

namespace ballast::assignment {
namespace {

using test::expect_valid;
using test::OwnedProblem;
using test::ProblemMaker;

// Gaussian scores, and more for the first experts.
std::vector<float> skewed(int64_t tokens, int64_t experts, uint64_t seed) {
  RandomStream random(seed, "skewed");
  std::vector<float> scores(tokens * experts);
  for (int64_t i = 0; i < tokens * experts; ++i) {
    scores[i] = static_cast<float>(random.normal() + 4.0 / static_cast<double>(1 + i % experts));
  }
  return scores;
}

TEST(Sinkhorn, IsValidOnAnyProblem) {
  SinkhornSolver solver(1);
  Assignment result;
  for (uint64_t i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    const bool large = i % 20 == 0;
    const OwnedProblem owned = ProblemMaker(2, i, large ? 600 : 60, large ? 70 : 12).make();
    solver.solve(owned.problem(), owned.start_prices, result);
    test::expect_valid(owned.problem(), result, owned.about);
  }
}

TEST(Sinkhorn, IsNearTheOptimumAndKnowsIt) {
  const std::vector<float> scores = skewed(2048, 64, 1);
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), 2048, 64);
  SinkhornSolver solver(1);
  Assignment result;
  solver.solve(problem, {}, result);
  EXPECT_LT(result.certificate.gap, 0.01 * result.certificate.primal);
  // The same where experts may have more than their share: then less is lost.
  const double equal = result.certificate.primal;
  problem.bounds = at_most(std::vector<int64_t>(64, 48), 2048);
  solver.solve(problem, {}, result);
  EXPECT_LT(result.certificate.gap, 0.01 * result.certificate.primal);
  EXPECT_GT(result.certificate.primal, equal);
}

TEST(Sinkhorn, DependsNeitherOnThreadsNorOnEarlierCalls) {
  constexpr int64_t kTokens = 16384;  // enough that threads start
  const std::vector<float> scores = skewed(kTokens, 65, 2);
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), kTokens, 65);
  SinkhornSolver one(1), three(3);
  Assignment first, again;
  one.solve(problem, {}, first);
  three.solve(ProblemMaker(1, 5, 60, 12).make().problem(), {}, again);
  three.solve(problem, {}, again);
  EXPECT_EQ(first.expert_of_token, again.expert_of_token);
  EXPECT_EQ(first.prices, again.prices);
}

TEST(Sinkhorn, EqualScoresSpreadOut) {
  const std::vector<float> scores(1000 * 8, -2.0F);
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), 1000, 8);
  problem.bounds = equal_loads(1000, 8);
  SinkhornSolver solver(1);
  Assignment result;
  solver.solve(problem, {}, result);
  test::expect_valid(problem, result, "equal scores");
  EXPECT_EQ(result.certificate.gap, 0);
}

TEST(Sinkhorn, OfOneExpertOrNoTokensIsEmptyWork) {
  const std::vector<float> scores = {3, 1, 2};
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), 3, 1);
  SinkhornSolver solver(1);
  Assignment result;
  solver.solve(problem, {}, result);
  EXPECT_EQ(result.expert_of_token, std::vector<int32_t>(3, 0));
  problem.scores = score_matrix(nullptr, 0, 3);
  solver.solve(problem, {}, result);
  EXPECT_EQ(result.loads, std::vector<int32_t>(3, 0));
  EXPECT_EQ(result.prices, std::vector<double>(3, 0));
  EXPECT_TRUE(result.certificate.valid);
}

}  // namespace
}  // namespace ballast::assignment
