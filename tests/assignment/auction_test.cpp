// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/auction.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ballast/system/random.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"

namespace ballast::assignment {
namespace {

using test::expect_valid;
using test::OwnedProblem;
using test::ProblemMaker;

std::vector<float> gauss(int64_t size, uint64_t seed) {
  RandomStream random(seed, "gauss");
  std::vector<float> scores(size);
  for (float& score : scores) score = static_cast<float>(random.normal());
  return scores;
}

AssignmentProblem problem_of(const std::vector<float>& scores, int64_t experts) {
  AssignmentProblem problem;
  problem.scores = score_matrix(scores.data(), std::ssize(scores) / experts, experts);
  problem.bounds = equal_loads(problem.scores.tokens, experts);
  return problem;
}

Assignment solve(const AssignmentProblem& problem, size_t threads = 1) {
  AuctionSolver solver(threads);
  Assignment result;
  solver.solve(problem, {}, result);
  return result;
}

// The paper's procedure, step by step on whole matrices. Needs experts that divide the tokens, and
// scores without ties. Returns an empty list where it takes more than `most_rounds`.
std::vector<int32_t> auction_of_the_paper(const std::vector<float>& scores, int64_t experts,
                                          int most_rounds) {
  const int64_t tokens = std::ssize(scores) / experts;
  const int64_t share = tokens / experts;
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const float epsilon = (*high - *low) / 50;
  std::vector<float> price(tokens, 0);
  std::vector<int32_t> holder(tokens, -1);
  for (int round = 0; round < most_rounds; ++round) {
    std::vector<float> bids(experts * tokens, 0);
    for (int64_t e = 0; e < experts; ++e) {
      std::vector<float> value(tokens);
      for (int64_t t = 0; t < tokens; ++t) {
        const bool held = holder[t] == e;
        value[t] = held ? std::numeric_limits<float>::max() : scores[t * experts + e] - price[t];
      }
      std::vector<int32_t> order(tokens);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return value[a] > value[b]; });
      for (int64_t i = 0; i < share; ++i) {
        const int32_t t = order[i];
        bids[e * tokens + t] = holder[t] == e ? epsilon : value[t] - value[order[share]] + epsilon;
      }
    }
    bool all = true;
    for (int64_t t = 0; t < tokens; ++t) {
      float highest = 0;
      for (int64_t e = 0; e < experts; ++e) {
        if (bids[e * tokens + t] <= highest) continue;
        highest = bids[e * tokens + t];
        holder[t] = static_cast<int32_t>(e);
      }
      price[t] += highest;
      all = all && highest > 0;
    }
    if (all) return holder;
  }
  return {};
}

TEST(Auction, GoesAsThePapersWhereThatOneWorks) {
  struct Shape {
    int64_t tokens, experts;
  };
  for (const auto [tokens, experts] :
       {Shape{8, 2}, Shape{64, 8}, Shape{60, 20}, Shape{512, 8}, Shape{768, 64}, Shape{64, 64}}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      std::vector<float> scores = gauss(tokens * experts, seed);
      if (seed % 2 == 1) {  // experts of different popularity
        for (size_t i = 0; i < scores.size(); ++i) scores[i] += 0.1F * (i % experts);
      }
      const auto want = auction_of_the_paper(scores, experts, AuctionSolver::kMostRounds);
      ASSERT_FALSE(want.empty());
      EXPECT_EQ(solve(problem_of(scores, experts)).expert_of_token, want)
          << tokens << " x " << experts << ", seed " << seed;
    }
  }
}

TEST(Auction, IsValidOnAnyProblem) {
  AuctionSolver solver(1);
  Assignment result;
  for (uint64_t i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    const bool large = i % 10 == 0;
    const OwnedProblem owned = ProblemMaker(1, i, large ? 600 : 60, large ? 70 : 12).make();
    solver.solve(owned.problem(), owned.start_prices, result);
    test::expect_valid(owned.problem(), result, owned.about);
    EXPECT_LE(solver.rounds(), AuctionSolver::kMostRounds);
  }
}

TEST(Auction, TiesGiveEachTokenOneExpert) {
  for (const int64_t experts : {8, 128}) {
    const std::vector<float> scores(2048 * experts, 1.5F);
    const AssignmentProblem problem = problem_of(scores, experts);
    const Assignment result = solve(problem);
    test::expect_valid(problem, result, "equal scores");
    EXPECT_EQ(result.certificate.gap, 0);
  }
}

TEST(Auction, EndsWhenExpertsDoNotDivideTokens) {
  for (const int64_t tokens : {100, 127, 129, 2050}) {
    const std::vector<float> scores = gauss(tokens * 128, tokens);
    const AssignmentProblem problem = problem_of(scores, 128);
    test::expect_valid(problem, solve(problem), std::to_string(tokens) + " tokens");
  }
}

TEST(Auction, OfOneExpertOrNoTokensIsEmptyWork) {
  const std::vector<float> scores = gauss(7, 1);
  EXPECT_EQ(solve(problem_of(scores, 1)).expert_of_token, std::vector<int32_t>(7, 0));
  AssignmentProblem none;
  none.scores = score_matrix(nullptr, 0, 3);
  const Assignment result = solve(none);
  EXPECT_TRUE(result.expert_of_token.empty());
  EXPECT_EQ(result.loads, std::vector<int32_t>(3, 0));
  EXPECT_TRUE(result.certificate.valid);
}

TEST(Auction, DependsNeitherOnThreadsNorOnEarlierCalls) {
  const std::vector<float> scores = gauss(1024 * 64, 3);
  const AssignmentProblem problem = problem_of(scores, 64);
  AuctionSolver solver(3);
  Assignment first, again;
  solver.solve(problem, {}, first);
  solver.solve(ProblemMaker(1, 5, 60, 12).make().problem(), {}, again);
  solver.solve(problem, {}, again);
  const Assignment alone = solve(problem);
  EXPECT_EQ(first.expert_of_token, alone.expert_of_token);
  EXPECT_EQ(again.expert_of_token, alone.expert_of_token);
  EXPECT_EQ(again.prices, alone.prices);
}

TEST(Auction, TakesNoMoreThreadsThanThereAreCores) {
  const std::vector<float> scores = gauss(256 * 8, 3);
  const AssignmentProblem problem = problem_of(scores, 8);
  const Assignment many = solve(problem, std::numeric_limits<size_t>::max());
  EXPECT_EQ(many.expert_of_token, solve(problem).expert_of_token);
}

TEST(Auction, IsNearTheOptimumOnGaussianScoresAndKnowsIt) {
  const std::vector<float> scores = gauss(2048 * 128, 1);
  const Assignment result = solve(problem_of(scores, 128));
  EXPECT_LT(result.certificate.gap, 0.01 * result.certificate.primal);
  EXPECT_EQ(*std::min_element(result.prices.begin(), result.prices.end()), 0);
}

TEST(Auction, DoesNotDependOnTheScoresUnit) {
  std::vector<float> scores = gauss(512 * 8, 2);
  const Assignment ordinary = solve(problem_of(scores, 8));
  for (float& score : scores) score *= 0x1p-110F;
  EXPECT_EQ(solve(problem_of(scores, 8)).expert_of_token, ordinary.expert_of_token);
  for (float& score : scores) score = score * 0x1p120F * 0x1p110F;
  EXPECT_EQ(solve(problem_of(scores, 8)).expert_of_token, ordinary.expert_of_token);
}

}  // namespace
}  // namespace ballast::assignment
