// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/ticks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ballast::figures {
namespace {

using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::string> texts(const Range& range, int wanted) {
  std::vector<std::string> texts;
  for (const Tick& tick : ticks_of(range, wanted)) texts.push_back(tick.text);
  return texts;
}

TEST(Ticks, LieOnRoundNumbers) {
  EXPECT_THAT(texts({0, 10}, 5), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(texts({-1, 1}, 4), ElementsAre("-1", "-0.5", "0", "0.5", "1"));
  EXPECT_THAT(texts({0.31, 0.52}, 4), ElementsAre("0.35", "0.4", "0.45", "0.5"));
}

TEST(Ticks, OfLargeNumbersHaveSuffixesThatTellThemApart) {
  EXPECT_THAT(texts({0, 3e6}, 3), ElementsAre("0", "1M", "2M", "3M"));
  EXPECT_THAT(texts({20000, 21000}, 4), ElementsAre("20k", "20.5k", "21k"));
}

TEST(Ticks, OfLogarithmicAxesAreRoundAndEvenlySpread) {
  EXPECT_THAT(texts({1, 100, Scale::kLog}, 8), ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(texts({1, 1e4, Scale::kLog}, 5), ElementsAre("1", "10", "100", "1000", "10k"));
}

TEST(Ticks, OfAShortLogarithmicAxisAreCloser) {
  EXPECT_THAT(texts({35, 190, Scale::kLog}, 6), ElementsAre("40", "50", "70", "100", "150"));
}

TEST(Ticks, OfAVeryShortLogarithmicAxisAreThoseOfALinearOne) {
  EXPECT_THAT(texts({21, 29, Scale::kLog}, 4), ElementsAre("22", "24", "26", "28"));
}

TEST(Ticks, NeverLieOutside) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog}) {
    for (const double low : {0.0013, 0.7, 3.0, 4711.0}) {
      for (const double factor : {1.03, 1.7, 12.0, 4e5}) {
        const Range range = {low, low * factor, scale};
        const std::vector<Tick> ticks = ticks_of(range, 5);
        EXPECT_GE(ticks.size(), 2) << low << " x " << factor;
        EXPECT_LE(ticks.size(), 13) << low << " x " << factor;
        for (const Tick& tick : ticks) {
          EXPECT_GE(tick.value, range.low * (1 - 1e-6));
          EXPECT_LE(tick.value, range.high * (1 + 1e-6));
        }
      }
    }
  }
}

TEST(Range, PlacesValues) {
  const Range linear = {10, 20}, logarithmic = {1, 100, Scale::kLog};
  EXPECT_DOUBLE_EQ(linear.part(15), 0.5);
  EXPECT_DOUBLE_EQ(logarithmic.part(10), 0.5);
}

TEST(Range, OnALogarithmicScaleZeroHasNoPlace) {
  EXPECT_TRUE(std::isnan(Range({1, 10, Scale::kLog}).part(0)));
  EXPECT_TRUE(std::isnan(Range({1, 10, Scale::kLog}).part(-3)));
}

TEST(Range, PassesOverWhatIsNoNumber) {
  const Range range = range_of({kNaN, 3, kInfinity, 7, -kInfinity}, Scale::kLinear);
  EXPECT_LE(range.low, 3);
  EXPECT_GE(range.low, 0);
  EXPECT_GE(range.high, 7);
  EXPECT_LE(range.high, 10);
  const Range positive = range_of({0, -1, 2, 200}, Scale::kLog);
  EXPECT_GT(positive.low, 1);
  EXPECT_LT(positive.high, 400);
}

TEST(Range, OfNothingOrOfOneValueCanBeDrawn) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog}) {
    for (const std::vector<double>& values :
         {std::vector<double>{}, {kNaN}, {0.0}, {5.0}, {5.0, 5.0}, {-2.0}}) {
      const Range range = range_of(values, scale);
      EXPECT_LT(range.low, range.high);
      EXPECT_TRUE(scale == Scale::kLinear || range.low > 0);
      EXPECT_GE(ticks_of(range, 4).size(), 2);
    }
  }
}

TEST(NumberText, IsShortAndTellsTheDistanceThatMatters) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(12.3456), "12.3");
  EXPECT_EQ(number_text(0.012345), "0.0123");
  EXPECT_EQ(number_text(3200), "3200");
  EXPECT_EQ(number_text(45678), "45.7k");
  EXPECT_EQ(number_text(1.32e9), "1.32B");
  EXPECT_EQ(number_text(-0.5), "-0.5");
  EXPECT_EQ(number_text(0.3, 0.1), "0.3");
  EXPECT_EQ(number_text(1e-17, 0.1), "0");
  EXPECT_EQ(number_text(3e-7), "3e-07");
  EXPECT_EQ(number_text(kNaN), "-");
  EXPECT_EQ(number_text(kInfinity), "-");
}

}  // namespace
}  // namespace ballast::figures
