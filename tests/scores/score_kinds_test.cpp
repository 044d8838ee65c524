// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/score_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "ballast/studio/scores/normal_numbers.h"
#include "tests/support/error_of.h"

namespace ballast::scores {
namespace {

using ::testing::HasSubstr;

std::vector<float> make(ScoreKind kind, int64_t tokens, int64_t experts, uint64_t seed = 1,
                        uint64_t batch = 0) {
  return generate_scores(
      {.kind = kind, .tokens = tokens, .experts = experts, .seed = seed, .batch = batch});
}

std::vector<int64_t> best_experts(const std::vector<float>& scores, int64_t experts) {
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  for (auto row = scores.begin(); row != scores.end(); row += experts)
    ++counts[static_cast<size_t>(std::max_element(row, row + experts) - row)];
  return counts;
}

bool is_random(ScoreKind kind) {
  return kind != ScoreKind::kAllEqual && kind != ScoreKind::kEqualRows;
}

TEST(NormalNumbers, HaveTheMomentsOfTheNormalDistribution) {
  std::vector<float> numbers(1 << 20);
  fill_normal(7, numbers);
  double mean = 0, square = 0, cube = 0, fourth = 0;
  int64_t beyond_two = 0;
  for (const double x : numbers) {
    mean += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  const auto count = static_cast<double>(numbers.size());
  // Five standard errors of each: sqrt(1, 2, 15, 96) / 1024, and of a share of 0.0455.
  EXPECT_NEAR(mean / count, 0, 5e-3);
  EXPECT_NEAR(square / count, 1, 7e-3);
  EXPECT_NEAR(cube / count, 0, 2e-2);
  EXPECT_NEAR(fourth / count, 3, 5e-2);
  EXPECT_NEAR(static_cast<double>(beyond_two) / count, 0.0455, 1.1e-3);
}

TEST(NormalNumbers, APrefixDoesNotDependOnTheLength) {
  std::vector<float> all(1500), part(700);
  fill_normal(3, all);
  fill_normal(3, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin()));
}

TEST(ScoreKinds, NamesAreReadBack) {
  std::set<std::string_view> names;
  for (const ScoreKind kind : all_score_kinds()) {
    EXPECT_EQ(parse_score_kind(score_kind_name(kind)), kind);
    EXPECT_FALSE(describe(kind).empty());
    names.insert(score_kind_name(kind));
  }
  EXPECT_EQ(names.size(), 13U);
  const std::string error = test::error_of([] { parse_score_kind("gaus"); });
  EXPECT_THAT(error, HasSubstr("\"gaus\""));
  EXPECT_THAT(error, HasSubstr("near-duplicates"));
}

TEST(ScoreKinds, AreFiniteAndTheSameOnAnyNumberOfThreads) {
  for (const ScoreKind kind : all_score_kinds()) {
    const ScoreRequest request{.kind = kind, .tokens = 333, .experts = 37, .seed = 5, .batch = 2};
    const std::vector<float> scores = generate_scores(request, 1);
    EXPECT_EQ(scores.size(), 333U * 37U);
    EXPECT_TRUE(std::ranges::all_of(scores, [](float x) { return std::isfinite(x); }));
    EXPECT_EQ(scores, generate_scores(request, 3)) << score_kind_name(kind);
  }
}

TEST(ScoreKinds, DependOnSeedAndBatch) {
  for (const ScoreKind kind : all_score_kinds()) {
    const auto scores = make(kind, 100, 8, 1, 0);
    EXPECT_EQ(scores != make(kind, 100, 8, 2, 0), kind != ScoreKind::kAllEqual);
    EXPECT_EQ(scores != make(kind, 100, 8, 1, 1), is_random(kind)) << score_kind_name(kind);
  }
}

TEST(ScoreKinds, MoreTokensOfABatchStartWithTheSameOnes) {
  const auto few = make(ScoreKind::kCluster, 128, 20), many = make(ScoreKind::kCluster, 640, 20);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(ScoreKinds, AnotherBatchHasTheSameExperts) {
  for (const ScoreKind kind : {ScoreKind::kCluster, ScoreKind::kCommon}) {
    const auto first = best_experts(make(kind, 4096, 16, 3, 0), 16);
    const auto second = best_experts(make(kind, 4096, 16, 3, 1), 16);
    int64_t difference = 0;
    for (size_t e = 0; e < 16; ++e) difference += std::abs(first[e] - second[e]);
    // Counts of two samples differ by about 16 * sqrt(4096 / 16); other experts, by thousands.
    EXPECT_LT(difference, 600) << score_kind_name(kind);
  }
}

TEST(ScoreKinds, ClustersAreSkewed) {
  const auto counts = best_experts(make(ScoreKind::kCluster, 4096, 128), 128);
  EXPECT_GT(*std::ranges::max_element(counts), 5 * 4096 / 128);
  EXPECT_GT(std::ranges::count(counts, 0), 30);
}

TEST(ScoreKinds, CommonScoresOrderExpertsAlikeForAllTokens) {
  constexpr int64_t kExperts = 64;
  const auto scores = make(ScoreKind::kCommon, 2048, kExperts);
  EXPECT_LE(kExperts - std::ranges::count(best_experts(scores, kExperts), 0), 8);
  double agreement = 0;  // over neighbouring rows, correlation
  for (size_t t = 0; t + 1 < 64; ++t) {
    const float *a = &scores[t * kExperts], *b = a + kExperts;
    const double x = std::accumulate(a, a + kExperts, 0.0) / kExperts;
    const double y = std::accumulate(b, b + kExperts, 0.0) / kExperts;
    double ab = 0, aa = 0, bb = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      ab += (a[e] - x) * (b[e] - y);
      aa += (a[e] - x) * (a[e] - x);
      bb += (b[e] - y) * (b[e] - y);
    }
    agreement += ab / std::sqrt(aa * bb) / 63;
  }
  EXPECT_GT(agreement, 0.95);
}

TEST(ScoreKinds, HaveTheTiesTheirNamesPromise) {
  const auto padded = make(ScoreKind::kPadded, 1000, 12);
  int64_t identical = 0;
  for (size_t t = 0; t < 1000; ++t)
    identical += std::equal(padded.begin(), padded.begin() + 12, padded.begin() + 12 * t);
  EXPECT_NEAR(static_cast<double>(identical), 300, 75);  // five standard errors
  for (const float x : make(ScoreKind::kQuantised, 100, 12)) EXPECT_EQ(x * 4, std::round(x * 4));
  const auto three = make(ScoreKind::kThreeValues, 1000, 12);
  EXPECT_EQ(std::set<float>(three.begin(), three.end()), (std::set<float>{0, 1, 2}));
  const auto equal = make(ScoreKind::kAllEqual, 10, 3);
  EXPECT_EQ(std::set<float>(equal.begin(), equal.end()).size(), 1U);
  const auto rows = make(ScoreKind::kEqualRows, 10, 3);
  EXPECT_TRUE(std::equal(rows.begin(), rows.end() - 3, rows.begin() + 3));
  EXPECT_EQ(best_experts(make(ScoreKind::kOnePreferred, 500, 9), 9)[0], 500);
}

TEST(ScoreKinds, LowRankAndOutliersAreWhatTheySay) {
  const auto low = make(ScoreKind::kLowRank, 50, 9);
  for (size_t t = 1; t < 50; ++t) {
    // Rounding of two products each.
    const float* row = &low[t * 9];
    for (size_t e = 1; e < 9; ++e)
      EXPECT_NEAR(row[e] * low[0], row[0] * low[e], 1e-6 * std::abs(row[e] * low[0]));
  }
  const auto far = make(ScoreKind::kOutliers, 5120, 9);
  const auto large = std::ranges::count_if(far, [](float x) { return std::abs(x) > 1e5; });
  EXPECT_NEAR(static_cast<double>(large), 10, 9);  // nearly three standard errors
}

TEST(ScoreKinds, CollapsedTokensAreNearlyOfTwoSorts) {
  constexpr int64_t kExperts = 32;
  const auto scores = make(ScoreKind::kCollapsed, 1000, kExperts);
  int64_t alike = 0;
  for (size_t t = 0; t < 1000; ++t) {
    double square = 0;  // of the distance to the first token
    for (size_t e = 0; e < kExperts; ++e)
      square += std::pow(scores[t * kExperts + e] - scores[e], 2) / kExperts;
    // 0.05 or so within a sort, 2.15 times a direction's length from one to the other.
    EXPECT_TRUE(square < 0.04 || square > 1) << t;
    alike += square < 0.04 ? 1 : 0;
  }
  EXPECT_NEAR(std::max(alike, 1000 - alike), 700, 75);  // five standard errors
}

TEST(ScoreKinds, NoTokensOneExpertAndShapesThatAreNone) {
  for (const ScoreKind kind : all_score_kinds()) {
    EXPECT_TRUE(make(kind, 0, 4).empty());
    EXPECT_EQ(make(kind, 5, 1).size(), 5U);
  }
  EXPECT_THAT(test::error_of([] { make(ScoreKind::kGauss, -1, 4); }), HasSubstr("-1 tokens"));
  EXPECT_THAT(test::error_of([] { make(ScoreKind::kGauss, 4, 0); }), HasSubstr("0 experts"));
  EXPECT_THAT(test::error_of([] { make(ScoreKind::kGauss, int64_t{1} << 50, 1 << 20); }),
              HasSubstr("more than this machine can hold"));
}

}  // namespace
}  // namespace ballast::scores
