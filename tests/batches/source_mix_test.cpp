// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/source_mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ballast/system/error.h"

namespace ballast::batches {
namespace {

TEST(SourceMix, DealsRowsInExactProportion) {
  const std::vector<std::vector<double>> cases = {
      {1},        {1, 1},    {0.7, 0.3},        {1, 2, 3}, {0.1, 0.2, 0.3, 0.4},
      {5, 0.001}, {1e-9, 1}, {1.0 / 3, 2.0 / 3}};
  for (const auto& weights : cases) {
    const SourceMix mix(weights);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<uint64_t> counts(weights.size());
    for (uint64_t row = 0; row < 20'000; ++row) {
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_EQ(mix.count(i, row), counts[i]);
        const double exact = static_cast<double>(row) * weights[i] / total;
        ASSERT_LE(std::abs(static_cast<double>(counts[i]) - exact),
                  static_cast<double>(weights.size()));
      }
      const auto [source, index] = mix(row);
      ASSERT_EQ(index, counts[source]);  // rows of a source are numbered without gaps
      ++counts[source];
    }
  }
}

TEST(SourceMix, IsExactAfterEveryPeriod) {
  const SourceMix mix({0.7, 0.2, 0.1});
  ASSERT_EQ(mix.period(), 10u);
  for (const uint64_t periods : {1u, 2u, 1'000'003u}) {
    EXPECT_EQ(mix.count(0, periods * 10), periods * 7);
    EXPECT_EQ(mix.count(1, periods * 10), periods * 2);
    EXPECT_EQ(mix.count(2, periods * 10), periods);
  }
  EXPECT_EQ(SourceMix({2, 4}).period(), 3u);
}

TEST(SourceMix, DoesNotOverflowFarIntoARun) {
  const SourceMix mix({1.0 / 7, std::sqrt(0.5)});
  const uint64_t row = uint64_t{1} << 60;
  const auto [source, index] = mix(row);
  EXPECT_EQ(index, mix.count(source, row));
  EXPECT_EQ(mix.count(0, row) + mix.count(1, row), row);
}

TEST(SourceMix, RefusesWeightsThatAreNotPositive) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(SourceMix({1, bad}), UserError) << bad;
  }
  EXPECT_THROW(SourceMix({}), UserError);
}

}  // namespace
}  // namespace ballast::batches
