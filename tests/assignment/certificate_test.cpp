// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/certificate.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/assignment/random_problem.h"
#include "tests/assignment/slow_solver.h"

namespace ballast::assignment {
namespace {

// A problem as methods see it, with the memory it refers to.
struct Active {
  explicit Active(test::OwnedProblem made) : owned(std::move(made)) {
    problem = rows.read(owned.problem(), owned.bounds, 1);
  }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

  test::OwnedProblem owned;
  ActiveRows rows;
  ActiveProblem problem;
};

test::OwnedProblem small() {
  return {
      .tokens = 4, .experts = 2, .scores = {5, 1, 4, 1, 3, 2, 0, 2}, .bounds = equal_loads(4, 2)};
}

TEST(Certificate, MeasuresAnAssignmentAndPrices) {
  const Active active(small());
  // Expert 0's price of 1 leaves token 2 undecided: both choices have profit 2.
  const Choice choice{.expert_of_row = {0, 0, 1, 1}, .prices = {1, 0}};
  const Certificate best =
      Certifier().certify(active.problem, choice, std::vector<int32_t>{2, 2}, 1);
  EXPECT_TRUE(best.valid);
  EXPECT_EQ(best.primal, 13);
  EXPECT_EQ(best.dual, 13);
  EXPECT_EQ(best.gap, 0);
  const Choice worse{.expert_of_row = {0, 1, 0, 1}, .prices = {1, 0}};
  const Certificate second =
      Certifier().certify(active.problem, worse, std::vector<int32_t>{2, 2}, 1);
  EXPECT_TRUE(second.valid);
  EXPECT_EQ(second.primal, 11);
  EXPECT_EQ(second.gap, 2);
}

TEST(Certificate, LoadsBeyondTheirBoundsAreNotValid) {
  const Active active(small());
  const Choice choice{.expert_of_row = {0, 0, 0, 1}, .prices = {0, 0}};
  const Certificate greedy =
      Certifier().certify(active.problem, choice, std::vector<int32_t>{3, 1}, 1);
  EXPECT_FALSE(greedy.valid);
  EXPECT_EQ(greedy.primal, 14);
  EXPECT_EQ(greedy.dual, 14);
}

TEST(Certificate, AForbiddenPairIsNotValid) {
  test::OwnedProblem made = small();
  made.scores[0] = -std::numeric_limits<float>::infinity();
  made.non_finite = NonFinite::kForbid;
  const Active active(std::move(made));
  const Choice choice{.expert_of_row = {0, 0, 1, 1}, .prices = {1, 0}};
  EXPECT_FALSE(Certifier().certify(active.problem, choice, std::vector<int32_t>{2, 2}, 1).valid);
  const Choice other{.expert_of_row = {1, 0, 0, 1}, .prices = {1, 0}};
  EXPECT_TRUE(Certifier().certify(active.problem, other, std::vector<int32_t>{2, 2}, 1).valid);
}

// The largest sum of price * load over all counted loads that padding can complete, by trying all.
double best_value(const ActiveProblem& problem, const std::vector<double>& prices, size_t expert,
                  int64_t counted, int64_t padding) {
  if (expert == prices.size()) return counted == 0 && padding == 0 ? 0 : -INFINITY;
  double best = -INFINITY;
  for (int64_t n = 0; n <= counted; ++n) {
    for (int64_t m = 0; m <= padding; ++m) {
      if (n + m < problem.bounds->lower[expert] || n + m > problem.bounds->upper[expert]) continue;
      best = std::max(best, prices[expert] * static_cast<double>(n) +
                                best_value(problem, prices, expert + 1, counted - n, padding - m));
    }
  }
  return best;
}

TEST(Certificate, TheValueOfLoadsIsTheLargestOfAllThatFit) {
  Certifier certifier;
  for (uint64_t i = 0; i < 800; ++i) {
    const Active active(test::ProblemMaker(21, i, 8, 4).make());
    RandomStream random(21, "prices", i);
    std::vector<double> prices(static_cast<size_t>(active.problem.experts));
    for (double& price : prices) price = static_cast<double>(random.below(9)) - 4;
    ASSERT_EQ(certifier.value_of_loads(prices, active.problem),
              best_value(active.problem, prices, 0, active.problem.tokens, active.problem.padding))
        << active.owned.about;
  }
}

TEST(Certificate, NoPricesPromiseLessThanTheOptimum) {
  Certifier certifier;
  for (uint64_t i = 0; i < 400; ++i) {
    const Active active(test::ProblemMaker(22, i, 6, 4).make());
    const AssignmentProblem problem = active.owned.problem();
    RandomStream random(22, "choice", i);
    Choice choice;
    for (int64_t t = 0; t < active.problem.tokens; ++t)
      choice.expert_of_row.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(active.problem.experts))));
    for (int64_t e = 0; e < active.problem.experts; ++e)
      choice.prices.push_back(random.normal() * active.problem.largest_magnitude);
    const std::vector<int32_t> loads(choice.prices.size());
    const Certificate found = certifier.certify(active.problem, choice, loads, 1);
    // Prices are as large as the largest score, and each sum rounds by 2^-53 of that.
    const double rounding = 1e-14 * active.problem.largest_magnitude;
    ASSERT_GE(found.dual, static_cast<double>(test::brute_force(problem).value()) - rounding)
        << active.owned.about;
  }
}

TEST(Certificate, IsTheSameOnAnyNumberOfThreads) {
  test::OwnedProblem made{.tokens = 20'000, .experts = 64, .bounds = equal_loads(20'000, 64)};
  RandomStream random(23, "threads");
  made.scores.resize(20'000 * 64);
  for (float& score : made.scores) score = static_cast<float>(random.normal());
  const Active active(std::move(made));
  Choice choice{.expert_of_row = {}, .prices = std::vector<double>(64)};
  std::vector<int32_t> loads(64);
  for (int64_t t = 0; t < 20'000; ++t) choice.expert_of_row.push_back(static_cast<int32_t>(t % 64));
  for (double& price : choice.prices) price = random.normal();
  const Certificate one = Certifier().certify(active.problem, choice, loads, 1);
  const Certificate three = Certifier().certify(active.problem, choice, loads, 3);
  EXPECT_EQ(one.primal, three.primal);
  EXPECT_EQ(one.gap, three.gap);
  EXPECT_GT(one.gap, 0);
}

TEST(Certificate, NothingToAssignIsOptimal) {
  const Active active({.tokens = 0, .experts = 3, .bounds = equal_loads(0, 3)});
  const Choice choice{.expert_of_row = {}, .prices = {0, 0, 0}};
  const Certificate found = Certifier().certify(active.problem, choice, std::vector<int32_t>(3), 1);
  EXPECT_TRUE(found.valid);
  EXPECT_EQ(found.gap, 0);
}

}  // namespace
}  // namespace ballast::assignment
