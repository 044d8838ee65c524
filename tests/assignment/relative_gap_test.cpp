// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ballast/assignment/certificate.h"
#include "ballast/assignment/solver.h"
#include "tests/assignment/random_problem.h"
#include "tests/assignment/slow_solver.h"

namespace ballast::assignment {
namespace {

double gap_of(const Certificate& found) {
  return relative_gap(found.primal, found.dual, found.blind);
}

// Whole numbers, so that constants can be added without rounding.
test::OwnedProblem whole_numbers(uint64_t seed, int64_t tokens, int64_t experts) {
  test::OwnedProblem made{.tokens = tokens,
                          .experts = experts,
                          .scores = std::vector<float>(static_cast<size_t>(tokens * experts)),
                          .bounds = equal_loads(tokens, experts)};
  RandomStream random(seed, "scores");
  for (float& score : made.scores) score = static_cast<float>(random.below(2000)) - 1000;
  return made;
}

Assignment solved(const test::OwnedProblem& made, SolverKind kind) {
  Assignment result;
  make_solver(kind)->solve(made.problem(), {}, result);
  return result;
}

Certificate certified(const test::OwnedProblem& made, const Choice& choice) {
  ActiveRows rows;
  const ActiveProblem active = rows.read(made.problem(), made.bounds, 1);
  std::vector<int32_t> loads(static_cast<size_t>(made.experts));
  for (const int32_t expert : choice.expert_of_row) ++loads[static_cast<size_t>(expert)];
  return Certifier().certify(active, choice, loads, 1);
}

TEST(RelativeGap, IsZeroAtTheOptimumAndOneAtTheBlindSpread) {
  EXPECT_EQ(relative_gap(13, 13, 9), 0);
  EXPECT_EQ(relative_gap(9, 13, 9), 1);
  EXPECT_EQ(relative_gap(12, 13, 9), 0.25);
  EXPECT_EQ(relative_gap(7, 13, 9), 1.5);  // worse than blind
  EXPECT_EQ(relative_gap(-13, -12, -20), 0.125);
}

TEST(RelativeGap, OfEqualScoresIsZeroUpToRounding) {
  EXPECT_EQ(relative_gap(0, 0, 0), 0);
  EXPECT_EQ(relative_gap(1e6, 1e6 * (1 + 1e-15), 1e6 * (1 - 1e-15)), 0);
  // A blind spread that is no valid one can be worth more than the optimum.
  EXPECT_EQ(relative_gap(12, 13, 13), INFINITY);
  EXPECT_EQ(relative_gap(13, 13, 14), 0);
  test::OwnedProblem made = whole_numbers(31, 30, 7);
  std::ranges::fill(made.scores, 0.1F);
  for (const SolverKind kind : {SolverKind::kExact, SolverKind::kAuction})
    EXPECT_EQ(gap_of(solved(made, kind).certificate), 0);
}

TEST(RelativeGap, DoesNotChangeWithAConstantAddedToARowOrAColumn) {
  for (const SolverKind kind : {SolverKind::kExact, SolverKind::kAuction, SolverKind::kSinkhorn}) {
    test::OwnedProblem made = whole_numbers(32, 64, 8);
    const Assignment result = solved(made, kind);
    Choice choice{result.expert_of_token, result.prices};
    const double before = gap_of(certified(made, choice));
    RandomStream random(33, "constants");
    for (int64_t t = 0; t < made.tokens; ++t) {
      const auto constant = static_cast<float>(random.below(100'000));
      for (int64_t e = 0; e < made.experts; ++e)
        made.scores[static_cast<size_t>(t * made.experts + e)] += constant;
    }
    EXPECT_NEAR(gap_of(certified(made, choice)), before, 1e-10);  // rounding of sums to 1e7
    for (int64_t e = 0; e < made.experts; ++e) {
      const auto constant = static_cast<float>(random.below(100'000));
      choice.prices[static_cast<size_t>(e)] += constant;
      for (int64_t t = 0; t < made.tokens; ++t)
        made.scores[static_cast<size_t>(t * made.experts + e)] += constant;
    }
    EXPECT_NEAR(gap_of(certified(made, choice)), before, 1e-10);
    EXPECT_EQ(before == 0, kind == SolverKind::kExact);
  }
}

TEST(RelativeGap, OfAnEqualSpreadTurnedThroughAllExpertsIsOneInTheMean) {
  const test::OwnedProblem made = whole_numbers(34, 48, 6);
  const std::vector<double> prices = solved(made, SolverKind::kExact).prices;
  double sum = 0;
  for (int64_t turn = 0; turn < made.experts; ++turn) {
    Choice choice{.expert_of_row = {}, .prices = prices};
    for (int64_t t = 0; t < made.tokens; ++t)
      choice.expert_of_row.push_back(static_cast<int32_t>((t + turn) % made.experts));
    const Certificate found = certified(made, choice);
    EXPECT_TRUE(found.valid);
    sum += gap_of(found);
  }
  EXPECT_NEAR(sum / static_cast<double>(made.experts), 1, 1e-12);
}

TEST(RelativeGap, OfAnyValidAssignmentIsWhatItLacksByBruteForce) {
  int64_t checked = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    test::OwnedProblem made = whole_numbers(35 + i, 6 + static_cast<int64_t>(i % 3), 3);
    if (i % 2 == 1) made.bounds = at_most(std::vector<int64_t>{5, 2, 4}, made.tokens);
    const auto best = static_cast<double>(test::brute_force(made.problem()).value());
    const auto blind = static_cast<double>(test::blind_value(made.problem()));
    const std::vector<double> prices = solved(made, SolverKind::kExact).prices;
    const Assignment other = solved(made, SolverKind::kAuction);
    const Certificate found =
        certified(made, {.expert_of_row = other.expert_of_token, .prices = prices});
    ASSERT_NEAR(gap_of(found), (best - found.primal) / (best - blind), 1e-10) << i;
    checked += found.primal < best ? 1 : 0;
  }
  EXPECT_GT(checked, 20);  // the auction is not always right
}

}  // namespace
}  // namespace ballast::assignment
