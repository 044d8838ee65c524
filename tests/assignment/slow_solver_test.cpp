// SPDX-License-Identifier: Apache-2.0
#include "tests/assignment/slow_solver.h"

#include <gtest/gtest.h>

#include "tests/assignment/random_problem.h"

namespace ballast::assignment {
namespace {

void expect_equal(const test::OwnedProblem& made) {
  const AssignmentProblem problem = made.problem();
  const auto brute = test::brute_force(problem), slow = test::slow_optimum(problem);
  ASSERT_EQ(brute.has_value(), slow.has_value()) << made.about;
  if (!brute) return;
  // The slow solver rounds scores to 2^-50 of the largest.
  const double tolerance = 1e-14 * test::magnitude_of(problem);
  ASSERT_NEAR(static_cast<double>(*brute - *slow), 0, tolerance) << made.about;
}

TEST(SlowSolver, IsAsGoodAsBruteForce) {
  for (uint64_t i = 0; i < 1500; ++i) expect_equal(test::ProblemMaker(1, i, 6, 4).make());
}

TEST(SlowSolver, KnowsWhatIsForbidden) {
  int64_t infeasible = 0;
  for (uint64_t i = 0; i < 1500; ++i) {
    const test::OwnedProblem made = test::ProblemMaker(2, i, 6, 4).make_with_forbidden();
    expect_equal(made);
    infeasible += !test::slow_optimum(made.problem()).has_value();
  }
  EXPECT_GT(infeasible, 50);
  EXPECT_LT(infeasible, 1200);
}

TEST(SlowSolver, NeedsPathsThroughThirdExperts) {
  // Token 2 wants expert 0, whose token would rather go to 1, whose token would rather go to 2.
  const std::vector<float> scores = {5, 4, 0, 0, 5, 4, 9, 0, 0};
  const test::OwnedProblem made{
      .tokens = 3, .experts = 3, .scores = scores, .bounds = equal_loads(3, 3)};
  EXPECT_EQ(test::slow_optimum(made.problem()), 4 + 4 + 9);
}

}  // namespace
}  // namespace ballast::assignment
