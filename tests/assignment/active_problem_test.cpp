// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/active_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/error_of.h"

namespace ballast::assignment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AssignmentProblem all_of(const ScoreMatrix& scores) {
  AssignmentProblem problem;
  problem.scores = scores;
  return problem;
}

std::vector<float> values_of(const ActiveProblem& active) {
  std::vector<float> values;
  for (int64_t t = 0; t < active.tokens; ++t)
    values.insert(values.end(), active.row(t), active.row(t) + active.experts);
  return values;
}

TEST(ActiveRows, RowMajorFloatsAreReadInPlace) {
  const std::vector<float> scores = {1, 2, 3, -4, 5, 6};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(3, 2);
  const ActiveProblem active = rows.read(all_of(score_matrix(scores.data(), 3, 2)), bounds, 1);
  EXPECT_EQ(active.scores, scores.data());
  EXPECT_EQ(active.largest_magnitude, 6);
  EXPECT_EQ(active.padding, 0);
  EXPECT_TRUE(rows.tokens().empty());
}

TEST(ActiveRows, AnyStridesGiveTheSameRows) {
  const std::vector<float> memory = {1, 9, 4, 9, 2, 9, 5, 9, 3, 9, 6, 9};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(2, 3);
  // Experts outside, tokens inside, every other element.
  const ScoreMatrix turned{
      .data = memory.data(), .tokens = 2, .experts = 3, .token_stride = 2, .expert_stride = 4};
  EXPECT_THAT(values_of(rows.read(all_of(turned), bounds, 1)), ElementsAre(1, 2, 3, 4, 5, 6));
  const ScoreMatrix padded{.data = memory.data(), .tokens = 2, .experts = 3, .token_stride = 6};
  EXPECT_THAT(values_of(rows.read(all_of(padded), bounds, 1)), ElementsAre(1, 9, 4, 5, 9, 3));
  const ScoreMatrix backwards{
      .data = memory.data() + 4, .tokens = 2, .experts = 3, .token_stride = 6, .expert_stride = -2};
  EXPECT_THAT(values_of(rows.read(all_of(backwards), bounds, 1)), ElementsAre(2, 4, 1, 6, 3, 5));
  const ScoreMatrix same_row{.data = memory.data(), .tokens = 2, .experts = 3, .token_stride = 0};
  EXPECT_THAT(values_of(rows.read(all_of(same_row), bounds, 1)), ElementsAre(1, 9, 4, 1, 9, 4));
}

// fp16 by its definition.
float half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(static_cast<float>(exponent == 0 ? fraction : fraction + 1024),
                           std::max(exponent, 1) - 25);
}

TEST(ActiveRows, EveryHalfFloatIsReadExactly) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    if (std::isfinite(half_value(static_cast<uint16_t>(bits))))
      halves.push_back(static_cast<uint16_t>(bits));
  const auto tokens = static_cast<int64_t>(halves.size() / 31);
  ASSERT_EQ(static_cast<size_t>(tokens) * 31, halves.size());
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(tokens, 31);
  for (const auto& [token_stride, expert_stride] :
       {std::pair<int64_t, int64_t>{31, 1}, {1, tokens}}) {
    const ScoreMatrix scores{.data = halves.data(),
                             .type = ScoreType::kFloat16,
                             .tokens = tokens,
                             .experts = 31,
                             .token_stride = token_stride,
                             .expert_stride = expert_stride};
    const ActiveProblem active = rows.read(all_of(scores), bounds, 1);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < 31; ++e)
        ASSERT_EQ(active.row(t)[e],
                  half_value(halves[static_cast<size_t>(t * token_stride + e * expert_stride)]));
    EXPECT_EQ(active.largest_magnitude, 65504);
  }
}

TEST(ActiveRows, BrainFloatsAreTheUpperHalfOfFloats) {
  const std::vector<uint16_t> scores = {0x3f80, 0xc000, 0x0001, 0x7f7f};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(2, 2);
  const ScoreMatrix matrix{.data = scores.data(),
                           .type = ScoreType::kBFloat16,
                           .tokens = 2,
                           .experts = 2,
                           .token_stride = 2};
  EXPECT_THAT(values_of(rows.read(all_of(matrix), bounds, 1)),
              ElementsAre(1.0F, -2.0F, std::bit_cast<float>(0x00010000U),
                          std::bit_cast<float>(0x7f7f0000U)));
}

TEST(ActiveRows, PaddingHasNoRows) {
  const std::vector<float> scores = {1, 2, NAN, INFINITY, 5, 6};
  const std::vector<uint8_t> counted = {1, 0, 1};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(3, 2);
  const ActiveProblem active = rows.read(
      {.scores = score_matrix(scores.data(), 3, 2), .bounds = {}, .counted = counted}, bounds, 1);
  EXPECT_THAT(values_of(active), ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(std::vector<int32_t>(rows.tokens().begin(), rows.tokens().end()), ElementsAre(0, 2));
  EXPECT_EQ(active.padding, 1);
  EXPECT_FALSE(active.has_forbidden);
}

TEST(ActiveRows, AnErrorNamesTheTokenNotTheRow) {
  for (const uint16_t bits : {0x7f80, 0xff80, 0x7fc0, 0xffff}) {  // bf16: inf, -inf, two NaN
    const std::vector<uint16_t> scores = {0x7fc0, 0, 0, 0, 0, bits};
    const std::vector<uint8_t> counted = {0, 1, 1};
    ActiveRows rows;
    const LoadBounds bounds = equal_loads(3, 2);
    const ScoreMatrix matrix{.data = scores.data(),
                             .type = ScoreType::kBFloat16,
                             .tokens = 3,
                             .experts = 2,
                             .token_stride = 2};
    EXPECT_THAT(test::error_of([&] {
                  rows.read({.scores = matrix, .bounds = {}, .counted = counted}, bounds, 1);
                }),
                HasSubstr("token 2 for expert 1"));
  }
}

TEST(ActiveRows, ForbiddenPairsDoNotCountAsMagnitude) {
  const std::vector<float> scores = {1, -INFINITY, -3, 2};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(2, 2);
  const ActiveProblem active = rows.read({.scores = score_matrix(scores.data(), 2, 2),
                                          .bounds = {},
                                          .counted = {},
                                          .non_finite = NonFinite::kForbid},
                                         bounds, 1);
  EXPECT_TRUE(active.has_forbidden);
  EXPECT_EQ(active.largest_magnitude, 3);
}

TEST(ActiveRows, ReplacementsAreCountedAndLeaveTheInputAlone) {
  std::vector<float> scores = {1, NAN, -3, INFINITY, -INFINITY, 2};
  ActiveRows rows;
  const LoadBounds bounds = equal_loads(3, 2);
  const AssignmentProblem problem{.scores = score_matrix(scores.data(), 3, 2),
                                  .bounds = {},
                                  .counted = {},
                                  .non_finite = NonFinite::kLowest};
  EXPECT_THAT(values_of(rows.read(problem, bounds, 1)), ElementsAre(1, -3, -3, -3, -3, 2));
  EXPECT_EQ(rows.replaced(), 3);
  EXPECT_TRUE(std::isnan(scores[1]));
  scores = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(rows.read(problem, bounds, 1).scores, scores.data());
  EXPECT_EQ(rows.replaced(), 0);
}

}  // namespace
}  // namespace ballast::assignment
