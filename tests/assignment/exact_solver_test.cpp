// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "ballast/assignment/solver.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"
#include "tests/assignment/slow_solver.h"
#include "tests/support/error_of.h"

namespace ballast::assignment {
namespace {

using test::OwnedProblem;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Assignment solve(const OwnedProblem& made, size_t threads = 1) {
  Assignment result;
  make_solver(SolverKind::kExact, threads)->solve(made.problem(), made.start_prices, result);
  return result;
}

OwnedProblem plain(int64_t tokens, int64_t experts, std::vector<float> scores) {
  return {.tokens = tokens,
          .experts = experts,
          .scores = std::move(scores),
          .bounds = equal_loads(tokens, experts),
          .about = "plain"};
}

void expect_optimum(const OwnedProblem& made, const Assignment& result, long double optimum) {
  const AssignmentProblem problem = made.problem();
  test::expect_exact(problem, result, made.about);
  ASSERT_NEAR(result.certificate.primal, static_cast<double>(optimum),
              1e-9 * test::magnitude_of(problem))
      << made.about;
}

// All score matrices of the shape with scores of a small set, by one solver.
void expect_all_matrices_exact(int64_t tokens, int64_t experts, const std::vector<float>& values,
                               const LoadBounds& bounds) {
  OwnedProblem made =
      plain(tokens, experts, std::vector<float>(static_cast<size_t>(tokens * experts)));
  made.bounds = bounds;
  const auto solver = make_solver(SolverKind::kExact);
  Assignment result;
  std::vector<size_t> digits(made.scores.size());
  for (;;) {
    for (size_t i = 0; i < digits.size(); ++i) made.scores[i] = values[digits[i]];
    const AssignmentProblem problem = made.problem();
    solver->solve(problem, {}, result);
    expect_optimum(made, result, test::brute_force(problem).value());
    if (::testing::Test::HasFailure()) return;
    size_t i = 0;
    while (i < digits.size() && ++digits[i] == values.size()) digits[i++] = 0;
    if (i == digits.size()) return;
  }
}

TEST(ExactSolver, EqualsBruteForceOnAllTinyMatrices) {
  expect_all_matrices_exact(3, 3, {0, 1, 3}, equal_loads(3, 3));
  expect_all_matrices_exact(4, 2, {-1, 0, 2}, equal_loads(4, 2));
  expect_all_matrices_exact(5, 2, {0, 1, 1.5}, {{1, 1}, {4, 3}});
  expect_all_matrices_exact(2, 4, {0, 1, 2}, equal_loads(2, 4));
  expect_all_matrices_exact(4, 3, {0, 1}, {{0, 0, 0}, {2, 3, 1}});
  expect_all_matrices_exact(5, 3, {0, 1}, {{2, 3, 0}, {2, 3, 0}});
}

TEST(ExactSolver, EqualsBruteForceOnTinyRandomProblems) {
  for (uint64_t i = 0; i < 3000; ++i) {
    const OwnedProblem made = test::ProblemMaker(11, i, 7, 4).make();
    expect_optimum(made, solve(made), test::brute_force(made.problem()).value());
    if (HasFailure()) return;
  }
}

TEST(ExactSolver, EqualsTheSlowSolverWhereItIsLarger) {
  for (uint64_t i = 0; i < 25; ++i) {
    const OwnedProblem made = test::ProblemMaker(12, i, 300, 40).make();
    expect_optimum(made, solve(made), test::slow_optimum(made.problem()).value());
    if (HasFailure()) return;
  }
}

// Its temperature was doubled until prices left 64 bits, which the sanitizer of undefined behaviour
// reports.
TEST(ExactSolver, LoadsThatCannotBeEvenLetNoPriceOverflow) {
  const OwnedProblem made = test::ProblemMaker(13, 2395, 600, 70).make();
  test::expect_exact(made.problem(), solve(made), made.about);
}

TEST(ExactSolver, TenThousandProblemsAreSolvedAndCertified) {
  const auto solver = make_solver(SolverKind::kExact);
  Assignment result;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const OwnedProblem made = test::ProblemMaker(13, i, 600, 70).make();
    const AssignmentProblem problem = made.problem();
    solver->solve(problem, made.start_prices, result);
    test::expect_exact(problem, result, made.about);
    if (i % 20 == 0) {  // neither what it solved before nor threads matter
      const Assignment fresh = solve(made, 3);
      EXPECT_EQ(fresh.expert_of_token, result.expert_of_token) << made.about;
      EXPECT_EQ(fresh.prices, result.prices) << made.about;
      EXPECT_EQ(fresh.certificate.gap, result.certificate.gap) << made.about;
    }
    if (problem.scores.tokens * problem.scores.experts <= 300)
      expect_optimum(made, result, test::slow_optimum(problem).value());
    if (HasFailure()) return;
  }
}

TEST(ExactSolver, ForbiddenPairsAreKeptToOrSaidToLeaveNoAnswer) {
  const auto solver = make_solver(SolverKind::kExact);
  Assignment result;
  int64_t infeasible = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const OwnedProblem made = i % 10 == 0 ? test::ProblemMaker(14, i, 120, 30).make_with_forbidden()
                                          : test::ProblemMaker(14, i, 20, 8).make_with_forbidden();
    const AssignmentProblem problem = made.problem();
    const auto optimum = test::slow_optimum(problem);
    if (optimum) {
      solver->solve(problem, made.start_prices, result);
      expect_optimum(made, result, *optimum);
    } else {
      ++infeasible;
      EXPECT_THAT(test::error_of([&] { solver->solve(problem, made.start_prices, result); }),
                  HasSubstr("forbid"))
          << made.about;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(infeasible, 100);
}

TEST(ExactSolver, AnyStartPricesGiveTheSameObjective) {
  for (uint64_t i = 0; i < 100; ++i) {
    OwnedProblem made = test::ProblemMaker(15, i, 400, 40).make();
    made.start_prices.clear();
    const Assignment cold = solve(made);
    const double magnitude = test::magnitude_of(made.problem());
    const std::vector<double> prices = cold.prices;
    RandomStream random(15, "prices", i);
    for (const double noise : {0.0, 0.1, 1.0, 1e6, 1e300}) {
      made.start_prices = prices;
      for (double& price : made.start_prices) price += noise * random.normal();
      const Assignment warm = solve(made);
      test::expect_exact(made.problem(), warm, made.about);
      EXPECT_NEAR(warm.certificate.primal, cold.certificate.primal, 1e-9 * magnitude) << made.about;
    }
    made.start_prices.assign(prices.size(), -1e308);
    made.start_prices[0] = 1e308;
    test::expect_exact(made.problem(), solve(made), made.about);
  }
}

TEST(ExactSolver, AUniqueOptimumIsFoundFromAnyPrices) {
  OwnedProblem made = plain(200, 10, {});
  RandomStream random(16, "unique");
  for (int64_t i = 0; i < 2000; ++i) made.scores.push_back(static_cast<float>(random.normal()));
  const Assignment cold = solve(made);
  made.start_prices.resize(10);
  for (double& price : made.start_prices) price = random.normal();
  EXPECT_EQ(solve(made).expert_of_token, cold.expert_of_token);
}

TEST(ExactSolver, LargerProblemsAreTheSameOnAnyNumberOfThreads) {
  constexpr int64_t kTokens = 12'000, kExperts = 100;
  OwnedProblem made = plain(kTokens, kExperts, {});
  RandomStream random(17, "threads");
  for (int64_t i = 0; i < kTokens * kExperts; ++i)
    made.scores.push_back(static_cast<float>(random.normal()));
  const Assignment one = solve(made, 1);
  test::expect_exact(made.problem(), one, made.about);
  for (const size_t threads : {2, 5}) {
    const Assignment other = solve(made, threads);
    EXPECT_EQ(other.expert_of_token, one.expert_of_token);
    EXPECT_EQ(other.prices, one.prices);
    EXPECT_EQ(other.certificate.primal, one.certificate.primal);
    EXPECT_EQ(other.certificate.gap, one.certificate.gap);
  }
}

TEST(ExactSolver, TiesFarFromTheStartAreResolved) {
  // As bf16 scores of a large offset: few distinct values, each expert tied with many.
  OwnedProblem made = plain(3000, 32, {});
  RandomStream random(18, "ties");
  for (int64_t i = 0; i < 3000 * 32; ++i)
    made.scores.push_back(256.0F + 2.0F * static_cast<float>(random.below(4)));
  test::expect_exact(made.problem(), solve(made), "ties");
  made.bounds = equal_loads(3000, 32);
  std::ranges::fill(made.scores, -7.25F);
  const Assignment equal = solve(made);
  test::expect_exact(made.problem(), equal, "all equal");
  EXPECT_EQ(equal.certificate.gap, 0);
}

TEST(ExactSolver, NoTokensOneExpertOneToken) {
  const Assignment none = solve(plain(0, 4, {}));
  EXPECT_TRUE(none.certificate.valid);
  EXPECT_EQ(none.certificate.primal, 0);
  EXPECT_EQ(none.certificate.gap, 0);
  EXPECT_EQ(none.loads, std::vector<int32_t>(4));
  const Assignment one_expert = solve(plain(3, 1, {1, -2, 4}));
  EXPECT_EQ(one_expert.expert_of_token, std::vector<int32_t>(3));
  EXPECT_EQ(one_expert.certificate.primal, 3);
  const Assignment one_token = solve(plain(1, 3, {1, 5, 2}));
  EXPECT_EQ(one_token.expert_of_token, std::vector<int32_t>{1});
  EXPECT_EQ(one_token.certificate.gap, 0);
}

TEST(ExactSolver, PaddingTakesWhatIsLeftWhateverItsScores) {
  OwnedProblem made = plain(4, 2, {9, 0, kNaN, kInfinity, 8, 0, kNaN, kNaN});
  made.counted = {1, 0, 1, 0};
  const Assignment result = solve(made);
  EXPECT_EQ(result.expert_of_token, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(result.certificate.primal, 17);
  EXPECT_TRUE(result.certificate.valid);
  made.counted = {0, 0, 0, 0};
  EXPECT_EQ(solve(made).loads, (std::vector<int32_t>{2, 2}));
}

TEST(ExactSolver, AScoreThatIsNotFiniteIsNamed) {
  OwnedProblem made = plain(3, 2, {1, 2, 3, kNaN, kInfinity, 6});
  EXPECT_THAT(test::error_of([&] { solve(made); }), HasSubstr("token 1 for expert 1"));
  made.scores[3] = -kInfinity;
  EXPECT_THAT(test::error_of([&] { solve(made); }), HasSubstr("token 1 for expert 1"));
  made.non_finite = NonFinite::kForbid;  // -inf is now a wish, +inf still a mistake
  EXPECT_THAT(test::error_of([&] { solve(made); }), HasSubstr("token 2 for expert 0"));
  made.counted = {1, 1, 0};
  EXPECT_EQ(solve(made).expert_of_token[1], 0);
}

TEST(ExactSolver, NonFiniteScoresCanCountAsTheLowest) {
  OwnedProblem made = plain(4, 2, {1, 2, 3, kNaN, kInfinity, 6, -kInfinity, -5});
  made.non_finite = NonFinite::kLowest;
  const Assignment result = solve(made);
  EXPECT_EQ(result.replaced_scores, 3);
  OwnedProblem replaced = plain(4, 2, {1, 2, 3, -5, -5, 6, -5, -5});
  test::expect_exact(replaced.problem(), result, "lowest");
  EXPECT_EQ(result.certificate.primal, solve(replaced).certificate.primal);
  made.scores.assign(8, kNaN);  // where none is finite all are alike, and any assignment will do
  EXPECT_EQ(solve(made).replaced_scores, 8);
  EXPECT_THAT(solve(made).loads, testing::Each(2));
}

TEST(ExactSolver, OneHugeScoreDoesNotHideTheOthers) {
  OwnedProblem made{.tokens = 20000,
                    .experts = 8,
                    .scores = std::vector<float>(20000 * 8),
                    .bounds = equal_loads(20000, 8)};
  RandomStream random(3, "huge");
  for (float& score : made.scores) score = static_cast<float>(random.uniform());
  made.scores[4321] = 1.7e13F;
  test::expect_exact(made.problem(), solve(made), "one score of 1.7e13");
}

// Prices climb by 3.8 from each expert to the next, much farther than two scores differ.
TEST(ExactSolver, ForbiddenPairsMayLeaveALongChain) {
  constexpr int64_t kExperts = 1100;
  OwnedProblem made{.tokens = kExperts,
                    .experts = kExperts,
                    .scores = std::vector<float>(kExperts * kExperts, -kInfinity),
                    .non_finite = NonFinite::kForbid};
  for (int64_t i = 0; i < kExperts; ++i) {
    made.scores[i * kExperts + i] = -1.9F;
    made.scores[i * kExperts + (i + 1) % kExperts] = i + 1 < kExperts ? 1.9F : -kInfinity;
  }
  const Assignment result = solve(made);
  EXPECT_TRUE(result.certificate.valid);
  EXPECT_NEAR(result.certificate.primal, -1.9 * kExperts, 1e-3);
}

TEST(ExactSolver, TooManyExpertsAreRefused) {
  const OwnedProblem made = plain(1, 20000, std::vector<float>(20000));
  EXPECT_THAT(test::error_of([&] { solve(made); }), HasSubstr("16384 experts"));
}

}  // namespace
}  // namespace ballast::assignment
