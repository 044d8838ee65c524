// SPDX-License-Identifier: Apache-2.0
// How much the exact solver works, counted: healthy scores must not be taken for collapsed ones,
// however few tokens an expert has.
#include <gtest/gtest.h>

#include <string>

#include "ballast/assignment/exact_solver.h"
#include "ballast/studio/scores/score_kinds.h"

namespace ballast::scores {
namespace {

struct Shape {
  int64_t tokens, experts;
};

// 8 to 128 tokens an expert.
constexpr Shape kShapes[] = {{128, 16},  {512, 64},   {768, 32},   {1024, 128}, {1536, 64},
                             {4096, 32}, {2048, 128}, {3072, 128}, {4096, 256}};

assignment::ExactWork work_on(const ScoreRequest& request) {
  const std::vector<float> scores = generate_scores(request);
  assignment::AssignmentProblem problem;
  problem.scores = assignment::score_matrix(scores.data(), request.tokens, request.experts);
  assignment::ExactSolver solver;
  assignment::Assignment result;
  solver.solve(problem, {}, result);
  EXPECT_TRUE(result.certificate.valid);
  return solver.work();
}

std::string name_of(const ScoreRequest& request) {
  return std::string(score_kind_name(request.kind)) + " " + std::to_string(request.tokens) + ", " +
         std::to_string(request.experts) + ", seed " + std::to_string(request.seed);
}

// Bounds are about twice the most that eight seeds took.
TEST(ExactWork, HealthyScoresTakeFewPassesAndNoAnnealing) {
  for (const ScoreKind kind : {ScoreKind::kGauss, ScoreKind::kCluster, ScoreKind::kOnePreferred}) {
    for (const Shape& shape : kShapes) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const ScoreRequest request{
            .kind = kind, .tokens = shape.tokens, .experts = shape.experts, .seed = seed};
        const assignment::ExactWork work = work_on(request);
        EXPECT_EQ(work.whole_passes, 0) << name_of(request);
        EXPECT_LE(work.rows_read, 10 * shape.tokens) << name_of(request);
        EXPECT_LE(work.newton_steps, 28) << name_of(request);
        EXPECT_LE(work.phases, 24) << name_of(request);
        EXPECT_LE(work.tokens_moved, shape.experts / 2 + shape.tokens / 50) << name_of(request);
      }
    }
  }
}

// Clusters in which one expert's scores are so much larger than others' that its price is far away.
// Newton's method went there in small steps: 4.7 passes, and 39 phases of exchanges.
TEST(ExactWork, AnExpertThatFarTooManyWantIsPricedAtOnce) {
  const ScoreRequest request{
      .kind = ScoreKind::kCluster, .tokens = 16384, .experts = 128, .seed = 13};
  const assignment::ExactWork work = work_on(request);
  EXPECT_EQ(work.whole_passes, 0);
  EXPECT_LE(work.rows_read, 4 * request.tokens);
  EXPECT_LE(work.phases, 20);
}

// What real scores look like early in training. Where few tokens find the first prices, one seed in
// many is off by more than chance and anneals.
TEST(ExactWork, ScoresAsOfEarlyTrainingTakeFewPasses) {
  int64_t annealed = 0;
  for (const Shape& shape : kShapes) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const ScoreRequest request{.kind = ScoreKind::kCommon,
                                 .tokens = shape.tokens,
                                 .experts = shape.experts,
                                 .seed = seed};
      const assignment::ExactWork work = work_on(request);
      annealed += work.whole_passes > 0 ? 1 : 0;
      EXPECT_LE(work.rows_read, 10 * shape.tokens) << name_of(request);
      EXPECT_LE(work.newton_steps, 28) << name_of(request);
      EXPECT_LE(work.phases, 24) << name_of(request);
    }
  }
  EXPECT_LE(annealed, 2);
}

TEST(ExactWork, CollapsedScoresAnnealAndLeaveFewExchanges) {
  for (const Shape& shape : {Shape{768, 32}, Shape{4096, 32}, Shape{1024, 128}, Shape{2048, 128}}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const ScoreRequest request{.kind = ScoreKind::kCollapsed,
                                 .tokens = shape.tokens,
                                 .experts = shape.experts,
                                 .seed = seed};
      const assignment::ExactWork work = work_on(request);
      EXPECT_GT(work.whole_passes, 0) << name_of(request);
      EXPECT_LE(work.whole_passes, 60) << name_of(request);
      EXPECT_LE(work.rows_read, 8 * shape.tokens) << name_of(request);
      EXPECT_LE(work.phases, 60) << name_of(request);
      EXPECT_LE(work.tokens_moved, shape.tokens / 8) << name_of(request);
    }
  }
}

}  // namespace
}  // namespace ballast::scores
