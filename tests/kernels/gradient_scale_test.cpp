// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gradient_scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

struct Found {
  double scale, norm;
};

Found find(std::vector<double> sums, double limit, const ClipRule& rule,
           at::Device device = at::kCPU) {
  const auto there = [&](std::vector<double> values) {
    return at::tensor(values, at::kDouble).to(device);
  };
  const GradientScale found =
      gradient_scale(there(std::move(sums)), there({limit}), rule, at::kDouble);
  return {found.scale.item<double>(), found.norm.item<double>()};
}

TEST(GradientScale, ClipsByTheNormOfWhatIsCounted) {
  // Norms 3, 4 and 12: of all but the experts 5, of all 13.
  const std::vector<double> sums{1, 9, 4, 144};
  EXPECT_EQ(find(sums, kInfinity, {}).norm, 5);
  EXPECT_EQ(find(sums, kInfinity, {}).scale, 1);
  EXPECT_EQ(find(sums, kInfinity, {.clip_norm = 10}).scale, 1);
  EXPECT_NEAR(find(sums, kInfinity, {.clip_norm = 1}).scale, 0.2, 1e-6);
  EXPECT_EQ(find(sums, kInfinity, {.clip_norm = 1, .over_all = true}).norm, 13);
  EXPECT_NEAR(find(sums, kInfinity, {.clip_norm = 1, .over_all = true}).scale, 1.0 / 13, 1e-6);
}

TEST(GradientScale, IsNotFiniteWhereNothingMayMove) {
  for (size_t i = 0; i < 4; ++i) {
    for (const double bad : {kNan, kInfinity}) {
      std::vector<double> sums{1, 9, 4, 144};
      sums[i] = bad;
      EXPECT_TRUE(std::isnan(find(sums, kInfinity, {.clip_norm = 1}).scale)) << i;
    }
  }
  EXPECT_TRUE(std::isnan(find({1, 9, 4, 0}, 4.999, {}).scale)) << "a spike";
  EXPECT_EQ(find({1, 9, 4, 0}, 5, {}).scale, 1);
}

TEST(GradientScale, RefusesOtherShapes) {
  EXPECT_THROW(find({1, 2, 3}, 1, {}), c10::Error);
  EXPECT_THROW(gradient_scale(at::zeros({4}), at::zeros({1}, at::kDouble), {}, at::kFloat),
               c10::Error);
}

TEST(GradientScaleCuda, DecidesAsTheCpuDoes) {
  ASSERT_TRUE(load_cuda_plugin().loaded);
  for (const double limit : {4.999, 5.0, kInfinity}) {
    for (const ClipRule rule :
         {ClipRule{}, ClipRule{.clip_norm = 1}, ClipRule{.clip_norm = 1, .over_all = true}}) {
      for (const std::vector<double>& sums : std::vector<std::vector<double>>{
               {1, 9, 4, 144}, {kNan, 9, 4, 144}, {1, kInfinity, 4, 144}, {1, 9, 4, kNan}}) {
        const Found expected = find(sums, limit, rule), got = find(sums, limit, rule, at::kCUDA);
        EXPECT_EQ(std::isnan(got.scale), std::isnan(expected.scale));
        // hypot may err by a unit in the last place.
        if (!std::isnan(expected.scale)) {
          EXPECT_NEAR(got.scale, expected.scale, 4e-16);
        }
        if (std::isfinite(expected.norm)) {
          EXPECT_NEAR(got.norm, expected.norm, 4e-15);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::kernels
