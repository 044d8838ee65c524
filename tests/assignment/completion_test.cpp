// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "ballast/assignment/auction.h"
#include "ballast/assignment/sinkhorn.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"
#include "tests/support/error_of.h"

namespace ballast::assignment {
namespace {

using test::OwnedProblem;
using test::ProblemMaker;

void expect_valid(const AssignmentProblem& problem, const Assignment& result,
                  const std::string& what) {
  test::expect_sound(problem, result, what);
  EXPECT_TRUE(result.certificate.valid) << what;
  EXPECT_GE(result.certificate.gap, -1e-12 * test::magnitude_of(problem)) << what;  // rounding
}

using testing::HasSubstr;

// The most tokens that can have a place of their own, places[e] with expert e: augmenting paths.
class LargestMatching {
 public:
  LargestMatching(const AssignmentProblem& problem, const std::vector<int32_t>& places)
      : problem_(problem), tokens_of_(places.size()), places_(places) {}

  int64_t size() {
    int64_t matched = 0;
    for (int64_t t = 0; t < problem_.scores.tokens; ++t) {
      if (!problem_.counted.empty() && problem_.counted[t] == 0) continue;
      seen_.assign(places_.size(), false);
      matched += place(t) ? 1 : 0;
    }
    return matched;
  }

 private:
  bool place(int64_t token) {
    const auto* scores = static_cast<const float*>(problem_.scores.data);
    for (size_t e = 0; e < places_.size(); ++e) {
      const float score = scores[token * problem_.scores.token_stride + static_cast<int64_t>(e)];
      if (seen_[e] || !std::isfinite(score) || places_[e] == 0) continue;
      seen_[e] = true;
      if (std::ssize(tokens_of_[e]) < places_[e]) {
        tokens_of_[e].push_back(token);
        return true;
      }
      for (int64_t& other : tokens_of_[e]) {
        if (!place(other)) continue;
        other = token;
        return true;
      }
    }
    return false;
  }

  const AssignmentProblem& problem_;
  std::vector<std::vector<int64_t>> tokens_of_;
  std::vector<int32_t> places_;
  std::vector<bool> seen_;
};

// Tokens can be matched into the upper bounds, and lower bounds be met but for what padding fills;
// both at once then is possible too (Mendelsohn and Dulmage).
bool is_feasible(const AssignmentProblem& problem) {
  const LoadBounds& bounds = problem.bounds;
  int64_t counted = problem.scores.tokens;
  if (!problem.counted.empty()) {
    counted = std::accumulate(problem.counted.begin(), problem.counted.end(), int64_t{0});
  }
  const int64_t required = std::accumulate(bounds.lower.begin(), bounds.lower.end(), int64_t{0});
  const int64_t padding = problem.scores.tokens - counted;
  return LargestMatching(problem, bounds.upper).size() == counted &&
         required - LargestMatching(problem, bounds.lower).size() <= padding;
}

template <typename Solver>
class ForbiddenPairs : public testing::Test {};
using Solvers = testing::Types<AuctionSolver, SinkhornSolver>;
TYPED_TEST_SUITE(ForbiddenPairs, Solvers);

TYPED_TEST(ForbiddenPairs, AreAvoidedExactlyWherePossible) {
  TypeParam solver(1);
  Assignment result;
  int feasible = 0;
  int infeasible = 0;
  for (uint64_t i = 0; i < 4000 && !testing::Test::HasFailure(); ++i) {
    const OwnedProblem owned = ProblemMaker(3, i, 24, 8).make_with_forbidden();
    const AssignmentProblem problem = owned.problem();
    if (is_feasible(problem)) {
      ++feasible;
      solver.solve(problem, {}, result);
      expect_valid(problem, result, owned.about);
    } else {
      ++infeasible;
      EXPECT_THAT(test::error_of([&] { solver.solve(problem, {}, result); }),
                  HasSubstr("no assignment keeps to the load bounds without a forbidden pair"))
          << owned.about;
    }
  }
  EXPECT_GT(feasible, 500);
  EXPECT_GT(infeasible, 500);
}

TEST(Completion, MovesAChainOfRowsWhereOneMoveIsNotEnough) {
  constexpr float kNo = -std::numeric_limits<float>::infinity();
  // Row i may have expert i or i + 1, the last one only expert 3; expert 0 wants a row.
  const std::vector<float> scores = {1,   2,   kNo, kNo, kNo, 1,   2,   kNo,
                                     kNo, kNo, 1,   2,   kNo, kNo, kNo, 1};
  LoadBounds bounds{.lower = {1, 1, 1, 1}, .upper = {1, 1, 1, 1}};
  const ActiveProblem problem{.scores = scores.data(),
                              .tokens = 4,
                              .experts = 4,
                              .row_stride = 4,
                              .bounds = &bounds,
                              .largest_magnitude = 2,
                              .has_forbidden = true};
  std::vector<int32_t> expert_of_row = {1, 2, 3, -1};
  const std::vector<double> prices(4, 0.0);
  Completion completion;
  completion.complete(problem, prices, expert_of_row);
  EXPECT_THAT(expert_of_row, testing::ElementsAre(0, 1, 2, 3));

  bounds = {.lower = {1, 1, 1, 0}, .upper = {4, 4, 4, 4}};
  expert_of_row = {1, 2, 3, 3};
  completion.complete(problem, prices, expert_of_row);
  EXPECT_THAT(expert_of_row, testing::ElementsAre(0, 1, 2, 3));
}

TEST(Completion, FillsLowerBoundsAtTheSmallestLoss) {
  const std::vector<float> scores = {9, 1, 9, 7, 9, 5};
  const LoadBounds bounds{.lower = {0, 1}, .upper = {3, 3}};
  const ActiveProblem problem{.scores = scores.data(),
                              .tokens = 3,
                              .experts = 2,
                              .row_stride = 2,
                              .bounds = &bounds,
                              .largest_magnitude = 9};
  std::vector<int32_t> expert_of_row = {-1, -1, -1};
  Completion().complete(problem, std::vector<double>(2, 0.0), expert_of_row);
  EXPECT_THAT(expert_of_row, testing::ElementsAre(0, 1, 0));
}

}  // namespace
}  // namespace ballast::assignment
