// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tests/support/error_of.h"

namespace ballast::assignment {
namespace {

using test::error_of;
using ::testing::HasSubstr;
using Loads = std::vector<int32_t>;

LoadBounds capacities(std::vector<int64_t> list, int64_t tokens) { return at_most(list, tokens); }

TEST(LoadBounds, EqualLoadsAreFloorOrCeil) {
  EXPECT_EQ(equal_loads(12, 4).lower, Loads(4, 3));
  EXPECT_EQ(equal_loads(12, 4).upper, Loads(4, 3));
  EXPECT_EQ(equal_loads(14, 4).lower, Loads(4, 3));
  EXPECT_EQ(equal_loads(14, 4).upper, Loads(4, 4));
  EXPECT_EQ(equal_loads(2, 5).lower, Loads(5, 0));
  EXPECT_EQ(equal_loads(2, 5).upper, Loads(5, 1));
  EXPECT_EQ(equal_loads(0, 3).upper, Loads(3, 0));
}

TEST(LoadBounds, EqualLoadsOfNoExpertsAreRefused) {
  EXPECT_THAT(error_of([] { equal_loads(4, 0); }), HasSubstr("loads of 0 experts"));
  EXPECT_THAT(error_of([] { equal_loads(0, -1); }), HasSubstr("loads of -1 experts"));
  EXPECT_THAT(error_of([] { equal_loads(-3, 2); }), HasSubstr("negative number of tokens: -3"));
}

TEST(LoadBounds, CapacitiesThatJustFitMustBeFilled) {
  const LoadBounds exact = capacities({3, 0, 2}, 5);
  EXPECT_EQ(exact.lower, (Loads{3, 0, 2}));
  EXPECT_EQ(exact.upper, (Loads{3, 0, 2}));
  const LoadBounds roomy = capacities({3, 0, 9}, 5);
  EXPECT_EQ(roomy.lower, (Loads{0, 0, 0}));
  EXPECT_EQ(roomy.upper, (Loads{3, 0, 5}));  // no expert gets more than all tokens
}

TEST(LoadBounds, CapacitiesThatDoNotFitAreRefused) {
  EXPECT_THAT(error_of([] { capacities({2, 2}, 5); }), HasSubstr("room for 4 tokens"));
  EXPECT_THAT(error_of([] { capacities({2, -1}, 1); }), HasSubstr("expert 1 is negative: -1"));
  EXPECT_EQ(error_of([] { capacities({0, 0}, 0); }), "no error");
}

TEST(LoadBounds, OnesThatFitNothingAreRefused) {
  EXPECT_EQ(error_of([] { check_bounds({{0, 1}, {2, 3}}, 4, 2); }), "no error");
  EXPECT_THAT(error_of([] { check_bounds({{0, 1}, {2, 3}}, 4, 3); }), HasSubstr("2 and 2 experts"));
  EXPECT_THAT(error_of([] { check_bounds({{0}, {2, 3}}, 4, 2); }), HasSubstr("1 and 2 experts"));
  EXPECT_THAT(error_of([] { check_bounds({{0, 3}, {2, 2}}, 4, 2); }), HasSubstr("expert 1"));
  EXPECT_THAT(error_of([] { check_bounds({{-1, 0}, {2, 2}}, 4, 2); }), HasSubstr("expert 0"));
  EXPECT_THAT(error_of([] { check_bounds({{0, 1}, {2, 3}}, 6, 2); }), HasSubstr("1 to 5"));
  EXPECT_THAT(error_of([] { check_bounds({{2, 2}, {3, 3}}, 3, 2); }), HasSubstr("4 to 6"));
}

std::string shape_error(int64_t tokens, int64_t experts, const float* data, size_t mask = 0) {
  const std::vector<uint8_t> counted(mask, 1);
  return error_of([&] {
    check_shape({.scores = score_matrix(data, tokens, experts), .bounds = {}, .counted = counted});
  });
}

TEST(AssignmentProblem, ShapesThatAreNoneAreRefused) {
  const std::array<float, 6> scores{};
  EXPECT_EQ(shape_error(3, 2, scores.data()), "no error");
  EXPECT_EQ(shape_error(3, 2, scores.data(), 3), "no error");
  EXPECT_EQ(shape_error(0, 2, nullptr), "no error");
  EXPECT_THAT(shape_error(-1, 2, scores.data()), HasSubstr("-1"));
  EXPECT_THAT(shape_error(3, 0, scores.data()), HasSubstr("0 experts"));
  EXPECT_THAT(shape_error(3, 2, nullptr), HasSubstr("without memory"));
  EXPECT_THAT(shape_error(3, 2, scores.data(), 4), HasSubstr("mask of 4 tokens"));
  EXPECT_THAT(shape_error(int64_t{1} << 31, 2, scores.data()), HasSubstr("2147483648"));
}

TEST(LoadBounds, HugeCapacitiesDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(capacities({kMost, kMost, kMost}, 7).upper, (Loads{7, 7, 7}));
  // Their 64-bit sum wraps to 2: still not a list that must be filled.
  EXPECT_EQ(capacities({kMost, kMost, 4}, 2).lower, (Loads{0, 0, 0}));
}

}  // namespace
}  // namespace ballast::assignment
