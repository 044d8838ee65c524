// SPDX-License-Identifier: Apache-2.0
// The exact solver on every kind of scores, and on what rounding to half precision makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "ballast/assignment/solver.h"
#include "ballast/studio/scores/score_kinds.h"
#include "ballast/system/random.h"

namespace ballast::scores {
namespace {

struct Shape {
  int64_t tokens, experts;
};

constexpr Shape kShapes[] = {{2048, 8}, {1001, 70}, {300, 300}, {64, 200}};

double magnitude_of(const std::vector<float>& scores, int64_t experts) {
  double sum = 0;
  for (size_t i = 0; i < scores.size();) {
    float largest = 0;
    for (int64_t e = 0; e < experts; ++e) largest = std::max(largest, std::fabs(scores[i++]));
    sum += largest;
  }
  return sum;
}

// From nothing, from another batch's prices, from these with noise, and from anything at all.
void expect_exact_from_all_starts(const ScoreRequest& request, const std::vector<float>& scores) {
  const std::string what = std::string(score_kind_name(request.kind)) + " [" +
                           std::to_string(request.tokens) + ", " + std::to_string(request.experts) +
                           "]";
  ScoreRequest other = request;
  other.batch = 1;
  const std::vector<float> like = generate_scores(other);
  const auto solver = assignment::make_solver(assignment::SolverKind::kExact);
  assignment::AssignmentProblem problem;
  assignment::Assignment result;
  problem.scores = assignment::score_matrix(like.data(), request.tokens, request.experts);
  solver->solve(problem, {}, result);
  const std::vector<double> warm = result.prices;
  std::vector<double> noisy = warm, random = warm;
  RandomStream numbers(1, "starts");
  for (double& price : noisy) price *= 1 + 0.1 * numbers.normal();
  for (double& price : random) price = 3 * numbers.normal();

  problem.scores = assignment::score_matrix(scores.data(), request.tokens, request.experts);
  const double magnitude = magnitude_of(scores, request.experts);
  for (const std::vector<double>& start : {std::vector<double>(), warm, noisy, random}) {
    solver->solve(problem, start, result);
    EXPECT_TRUE(result.certificate.valid) << what;
    EXPECT_LE(result.certificate.gap, 1e-9 * magnitude) << what;
    const auto [least, most] = std::ranges::minmax(result.loads);
    EXPECT_LE(most - least, request.tokens % request.experts == 0 ? 0 : 1) << what;
  }
}

TEST(ExactOnKinds, EveryKindIsSolvedFromEveryStart) {
  for (const ScoreKind kind : all_score_kinds()) {
    for (const Shape& shape : kShapes) {
      const ScoreRequest request{.kind = kind, .tokens = shape.tokens, .experts = shape.experts};
      expect_exact_from_all_starts(request, generate_scores(request));
    }
  }
}

TEST(ExactOnKinds, AlsoRoundedToBrainFloats) {
  for (const ScoreKind kind : {ScoreKind::kGauss, ScoreKind::kCluster, ScoreKind::kCommon,
                               ScoreKind::kNearDuplicates, ScoreKind::kLowRank}) {
    for (const Shape& shape : kShapes) {
      // Of seeds 1 and 10 a few rows are multiples of what others are not.
      for (const uint64_t seed : {0, 1, 10}) {
        const ScoreRequest request{
            .kind = kind, .tokens = shape.tokens, .experts = shape.experts, .seed = seed};
        std::vector<float> scores = generate_scores(request);
        for (float& x : scores) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000U);
        expect_exact_from_all_starts(request, scores);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::scores
