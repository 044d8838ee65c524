// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ballast::record {
namespace {

TEST(LossAt, LossIsLinearInTheLogarithmOfTokens) {
  const std::vector<ValidationPoint> points = {{1, 100, 1, 4.0}, {2, 10000, 2, 2.0}};
  EXPECT_DOUBLE_EQ(loss_at(points, 100), 4.0);
  EXPECT_DOUBLE_EQ(loss_at(points, 10000), 2.0);
  EXPECT_DOUBLE_EQ(loss_at(points, 1000), 3.0);
  EXPECT_NEAR(loss_at(points, 100 * std::pow(10, 0.5)), 3.5, 1e-12);
}

TEST(LossAt, BeyondTheValidationsNothingIsKnown) {
  const std::vector<ValidationPoint> points = {{1, 100, 1, 4.0}, {2, 10000, 2, 2.0}};
  EXPECT_TRUE(std::isnan(loss_at(points, 99)));
  EXPECT_TRUE(std::isnan(loss_at(points, 10001)));
  EXPECT_TRUE(std::isnan(loss_at({}, 100)));
  EXPECT_TRUE(std::isnan(loss_at(points, kUnknown)));
}

TEST(LossAt, ValidationsWithoutALossOrAPlaceArePassedOver) {
  const std::vector<ValidationPoint> points = {
      {1, 100, 1, 4.0}, {2, 1000, 2, kUnknown}, {3, kUnknown, 3, 9.0}, {4, 10000, 4, 2.0}};
  EXPECT_DOUBLE_EQ(loss_at(points, 1000), 3.0);
}

}  // namespace
}  // namespace ballast::record
