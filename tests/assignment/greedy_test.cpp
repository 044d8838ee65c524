// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/greedy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/assignment/random_problem.h"
#include "tests/support/error_of.h"

namespace ballast::assignment {
namespace {

using test::OwnedProblem;
using test::ProblemMaker;

using testing::ElementsAre;
using testing::HasSubstr;

Assignment solve(const AssignmentProblem& problem, size_t threads = 1) {
  GreedySolver solver(threads);
  Assignment result;
  solver.solve(problem, {}, result);
  return result;
}

TEST(Greedy, TakesEachTokensBestExpertAndTheFirstOfEqualOnes) {
  const std::vector<float> scores = {1, 3, 3, 2, 0, 1, -1, -2, -1};
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), 3, 3);
  const Assignment result = solve(problem);
  EXPECT_THAT(result.expert_of_token, ElementsAre(1, 0, 0));
  EXPECT_THAT(result.tokens_by_expert, ElementsAre(1, 2, 0));
  EXPECT_THAT(result.loads, ElementsAre(2, 1, 0));
  EXPECT_THAT(result.prices, ElementsAre(0, 0, 0));
  EXPECT_FALSE(result.certificate.valid);
  EXPECT_EQ(result.certificate.primal, 4);
  EXPECT_EQ(result.certificate.gap, 0);
}

TEST(Greedy, FindsTheFirstMaximumOfAnyRow) {
  for (uint64_t i = 0; i < 300; ++i) {
    const OwnedProblem owned = ProblemMaker(4, i, 40, 70).make();
    const ScoreMatrix scores = owned.problem().scores;
    const Assignment result = solve(owned.problem(), 2);
    for (int64_t t = 0; t < scores.tokens; ++t) {
      if (!owned.counted.empty() && owned.counted[t] == 0) continue;
      const float* row = static_cast<const float*>(scores.data) + t * scores.token_stride;
      EXPECT_EQ(result.expert_of_token[t], std::max_element(row, row + scores.experts) - row);
    }
  }
}

TEST(Greedy, RefusesATokenWithoutAnAllowedExpert) {
  constexpr float kNo = -std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {1, kNo, kNo, kNo};
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), 2, 2);
  problem.non_finite = NonFinite::kForbid;
  EXPECT_THAT(test::error_of([&] { solve(problem); }), HasSubstr("without a forbidden pair"));
}

}  // namespace
}  // namespace ballast::assignment
