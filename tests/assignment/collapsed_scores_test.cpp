// SPDX-License-Identifier: Apache-2.0
// The exact solver where tokens are nearly of two sorts, and what differs within a sort gets
// smaller and smaller: early in training features can collapse to that.
#include <gtest/gtest.h>

#include <array>

#include "ballast/assignment/exact_solver.h"
#include "ballast/system/random.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"
#include "tests/assignment/slow_solver.h"

namespace ballast::assignment {
namespace {

// `decay`: how much smaller each part is than the one before.
test::OwnedProblem collapsed(int64_t tokens, int64_t experts, double decay, uint64_t seed) {
  RandomStream random(seed, "collapsed");
  constexpr size_t kParts = 6;
  const auto count = static_cast<size_t>(experts);
  std::vector<float> scores(static_cast<size_t>(tokens) * count);
  std::array<std::vector<double>, kParts> directions;
  std::vector<double> shared(count);
  for (double& x : shared) x = 2 * random.normal();
  for (auto& direction : directions) {
    direction.resize(count);
    for (double& x : direction) x = random.normal();
  }
  for (size_t t = 0; t < scores.size(); t += count) {
    const double sort = random.uniform() < 0.7 ? -0.65 : 1.5;
    std::vector<double> row = shared;
    double strength = 1;
    for (const auto& direction : directions) {
      const double x = strength == 1 ? sort + 0.02 * random.normal() : strength * random.normal();
      for (size_t e = 0; e < count; ++e) row[e] += x * direction[e];
      strength *= decay;
    }
    for (size_t e = 0; e < count; ++e) scores[t + e] = static_cast<float>(row[e]);
  }
  return {.tokens = tokens,
          .experts = experts,
          .scores = std::move(scores),
          .bounds = equal_loads(tokens, experts),
          .about = "collapsed, seed " + std::to_string(seed)};
}

TEST(CollapsedScores, TheSlowSolverFindsTheSame) {
  for (uint64_t seed = 0; seed < 40 && !testing::Test::HasFailure(); ++seed) {
    const test::OwnedProblem made = collapsed(200 + static_cast<int64_t>(7 * seed),
                                              static_cast<int64_t>(3 + seed % 14), 0.1, seed);
    const AssignmentProblem problem = made.problem();
    ExactSolver solver;
    Assignment result;
    solver.solve(problem, {}, result);
    test::expect_exact(problem, result, made.about);
    EXPECT_NEAR(result.certificate.primal, static_cast<double>(test::slow_optimum(problem).value()),
                1e-9 * test::magnitude_of(problem));
  }
}

TEST(CollapsedScores, FewExchangesAreLeftToMake) {
  for (const double decay : {0.3, 0.1, 0.03}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const test::OwnedProblem made = collapsed(4096, 32, decay, seed);
      const AssignmentProblem problem = made.problem();
      ExactSolver solver;
      Assignment result;
      solver.solve(problem, {}, result);
      test::expect_exact(problem, result, made.about);
      // Without passes over all tokens and experts there were hundreds.
      EXPECT_LE(solver.work().phases, 60) << made.about << ", decay " << decay;
      EXPECT_LE(solver.work().whole_passes, 32) << made.about << ", decay " << decay;
      EXPECT_LE(solver.work().rows_read, 7 * made.tokens) << made.about << ", decay " << decay;
      if (decay < 0.1) {
        EXPECT_GT(solver.work().whole_passes, 0) << made.about;
      }
    }
  }
}

TEST(CollapsedScores, AnyNumberOfThreadsAndAnyStartGiveTheSame) {
  const test::OwnedProblem made = collapsed(16400, 72, 0.1, 5);
  const AssignmentProblem problem = made.problem();
  Assignment one, many, warm;
  ExactSolver().solve(problem, {}, one);
  ExactSolver(3).solve(problem, {}, many);
  EXPECT_EQ(one.expert_of_token, many.expert_of_token);
  EXPECT_EQ(one.prices, many.prices);
  const std::vector<double> wrong(72, 1.0);
  ExactSolver().solve(problem, wrong, warm);
  EXPECT_NEAR(warm.certificate.primal, one.certificate.primal, 1e-9 * test::magnitude_of(problem));
}

TEST(CollapsedScores, UnevenSharesAndPaddingAreKept) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    test::OwnedProblem made = collapsed(2000, 16, 0.1, seed);
    for (size_t e = 0; e < 16; ++e) {
      made.bounds.lower[e] = e % 4 == 0 ? 60 : 20;
      made.bounds.upper[e] = e % 4 == 0 ? 60 : 400;
    }
    if (seed % 2 == 0) {
      made.counted.assign(2000, 1);
      for (size_t t = 0; t < 2000; t += 3) made.counted[t] = 0;
    }
    Assignment result;
    ExactSolver().solve(made.problem(), {}, result);
    test::expect_exact(made.problem(), result, made.about);
  }
}

}  // namespace
}  // namespace ballast::assignment
