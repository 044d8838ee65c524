// SPDX-License-Identifier: Apache-2.0
// How much the exact solver does: bounds on work, which no machine's noise can break. What a seed
// happens to draw must not make a call several times as long as its neighbours.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ballast/assignment/exact_solver.h"
#include "ballast/system/random.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/assignment/random_problem.h"

namespace ballast::assignment {
namespace {

using test::OwnedProblem;

// Scores row by row: `row` fills one.
OwnedProblem made_of_rows(int64_t tokens, int64_t experts, const std::string& about,
                          const std::function<void(std::span<float>)>& row) {
  OwnedProblem made{
      .tokens = tokens,
      .experts = experts,
      .scores = std::vector<float>(static_cast<size_t>(tokens * experts)),
      .bounds = equal_loads(tokens, experts),
      .about = about + " [" + std::to_string(tokens) + ", " + std::to_string(experts) + "]"};
  const auto width = static_cast<size_t>(experts);
  for (size_t t = 0; t < made.scores.size(); t += width) {
    row(std::span(made.scores).subspan(t, width));
  }
  return made;
}

std::vector<double> normals(RandomStream& random, size_t count, double scale) {
  std::vector<double> numbers(count);
  for (double& x : numbers) x = scale * random.normal();
  return numbers;
}

OwnedProblem gaussian(int64_t tokens, int64_t experts, uint64_t seed) {
  RandomStream random(seed, "gaussian");
  return made_of_rows(tokens, experts, "gaussian, seed " + std::to_string(seed),
                      [&](std::span<float> row) {
                        for (float& score : row) score = static_cast<float>(random.normal());
                      });
}

// Twenty sorts of tokens, some of them common; experts of uneven norm that all tokens like or not.
OwnedProblem clustered(int64_t tokens, int64_t experts, uint64_t seed) {
  RandomStream random(seed, "clustered");
  constexpr size_t kSorts = 20;
  const auto width = static_cast<size_t>(experts);
  const std::vector<double> liked = normals(random, width, 19);
  const std::vector<double> sorts = normals(random, kSorts * width, 4.8);
  std::vector<double> norm = normals(random, width, 0.4);
  for (double& x : norm) x = std::exp(x);
  return made_of_rows(tokens, experts, "clustered, seed " + std::to_string(seed),
                      [&](std::span<float> row) {
                        const double u = random.uniform();
                        const auto sort = static_cast<size_t>(kSorts * u * u * u);
                        for (size_t e = 0; e < width; ++e) {
                          const double own = sorts[sort * width + e] + 2.4 * random.normal();
                          row[e] = static_cast<float>(liked[e] + norm[e] * own);
                        }
                      });
}

// As a model's: what all tokens share is large, tokens differ in few directions of falling strength
// and neighbours are alike; in half precision.
OwnedProblem as_in_training(int64_t tokens, int64_t experts, uint64_t seed) {
  RandomStream random(seed, "training");
  constexpr size_t kDirections = 24;
  const auto width = static_cast<size_t>(experts);
  const std::vector<double> shared = normals(random, width, 2);
  const std::vector<double> directions = normals(random, kDirections * width, 1);
  std::vector<double> features(kDirections);
  return made_of_rows(tokens, experts, "as in training, seed " + std::to_string(seed),
                      [&](std::span<float> row) {
                        for (size_t d = 0; d < kDirections; ++d) {
                          const double strength = 1 / (1 + 0.5 * static_cast<double>(d));
                          features[d] = 0.6 * features[d] + 0.8 * strength * random.normal();
                        }
                        for (size_t e = 0; e < width; ++e) {
                          double score = shared[e] + 0.1 * random.normal();
                          for (size_t d = 0; d < kDirections; ++d)
                            score += features[d] * directions[d * width + e];
                          row[e] = static_cast<float>(std::round(score * 512) / 512);
                        }
                      });
}

struct WorkBounds {
  double passes;  // over all scores
  int64_t newton_steps, phases;
};

void expect_work_within(const OwnedProblem& made, const WorkBounds& bounds) {
  const AssignmentProblem problem = made.problem();
  ExactSolver solver;
  Assignment result;
  solver.solve(problem, {}, result);
  test::expect_exact(problem, result, made.about);
  const ExactWork& work = solver.work();
  EXPECT_EQ(work.whole_passes, 0) << made.about;  // prices were never taken for lost
  EXPECT_LE(static_cast<double>(work.rows_read), bounds.passes * static_cast<double>(made.tokens))
      << made.about;
  EXPECT_LE(work.newton_steps, bounds.newton_steps) << made.about;
  EXPECT_LE(work.phases, bounds.phases) << made.about;
}

using Maker = OwnedProblem (*)(int64_t tokens, int64_t experts, uint64_t seed);

void expect_all_sizes_within(Maker maker, const WorkBounds& bounds) {
  for (const int64_t experts : {8, 16, 32, 64, 128}) {
    for (const int64_t share : {8, 16, 24, 32, 64, 128}) {
      const int64_t scores = experts * experts * share;
      const uint64_t seeds = scores > 300'000 ? 1 : scores > 30'000 ? 5 : 20;
      for (uint64_t seed = 0; seed < seeds; ++seed) {
        expect_work_within(maker(share * experts, experts, seed), bounds);
      }
    }
  }
}

TEST(ExactWork, OrdinaryScoresOfAnySizeTakeFewPassesAndExchanges) {
  expect_all_sizes_within(gaussian, {.passes = 5, .newton_steps = 16, .phases = 24});
}

TEST(ExactWork, ClusteredScoresOfAnySizeTakeFewPassesAndExchanges) {
  expect_all_sizes_within(clustered, {.passes = 6, .newton_steps = 16, .phases = 24});
}

// Prices of few tokens an expert, and a long first step on all of them, which can miss: loads are
// off by what chance does to the sample, though all tokens have been looked at.
TEST(ExactWork, AFirstStepOnAllTokensThatMissesIsNotTakenForLost) {
  constexpr WorkBounds kFew = {.passes = 7, .newton_steps = 16, .phases = 24};
  for (const uint64_t seed : {51, 52, 103}) {
    expect_work_within(clustered(64 * 24, 64, seed), kFew);
  }
  expect_work_within(clustered(128 * 16, 128, 27), kFew);
  expect_work_within(clustered(128 * 24, 128, 49), kFew);
}

TEST(ExactWork, ScoresAsInTrainingTakeFewPassesAndExchanges) {
  expect_all_sizes_within(as_in_training, {.passes = 8, .newton_steps = 24, .phases = 60});
}

}  // namespace
}  // namespace ballast::assignment
