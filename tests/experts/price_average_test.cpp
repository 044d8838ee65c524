// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/price_average.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::experts {
namespace {

at::Tensor prices(std::initializer_list<double> values) { return at::tensor(values, at::kDouble); }

TEST(PriceAverage, MovesAsFarAsItIsToldAndItsStartAtLeastAFifth) {
  PriceAverage average(2);
  EXPECT_TRUE(average.is_zero());
  average.move_towards(prices({4, -4}), 1);
  EXPECT_TRUE(at::equal(average.value(), prices({4, -4})));
  EXPECT_TRUE(at::equal(average.start(), prices({4, -4})));
  EXPECT_FALSE(average.is_zero());
  average.move_towards(prices({0, 0}), 0.25);
  EXPECT_TRUE(at::equal(average.value(), prices({3, -3})));
  EXPECT_TRUE(at::equal(average.start(), prices({3, -3})));
  average.move_towards(prices({8, -8}), 0.125);
  EXPECT_TRUE(at::equal(average.value(), prices({3.625, -3.625})));
  EXPECT_TRUE(at::allclose(average.start(), prices({4, -4}), 1e-15, 0));
}

TEST(PriceAverage, LeavesWhatOthersHoldAsItIs) {
  PriceAverage average(2);
  const at::Tensor given = prices({1, -1});
  average.set(given);
  const at::Tensor value = average.value(), start = average.start();
  average.move_towards(prices({2, -2}), 0.5);
  EXPECT_TRUE(at::equal(value, prices({1, -1})));
  EXPECT_TRUE(at::equal(start, prices({1, -1})));
  EXPECT_TRUE(at::equal(given, prices({1, -1})));
}

TEST(PriceAverage, HasAStartOfItsOwn) {
  PriceAverage average(2);
  average.set(prices({1, -1}));
  average.set_start(prices({0, 0}));
  EXPECT_TRUE(average.is_zero()) << "there is nothing to start from";
  EXPECT_TRUE(at::equal(average.value(), prices({1, -1})));
  average.set_start(prices({2, -2}));
  EXPECT_TRUE(at::equal(average.start(), prices({2, -2})));
  EXPECT_TRUE(at::equal(average.value(), prices({1, -1})));
  average.set(prices({3, -3}));
  EXPECT_TRUE(at::equal(average.start(), prices({3, -3})));
}

}  // namespace
}  // namespace ballast::experts
