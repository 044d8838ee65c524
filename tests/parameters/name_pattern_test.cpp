// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/name_pattern.h"

#include <gtest/gtest.h>

namespace ballast::parameters {
namespace {

TEST(NamePattern, AStarStandsForAnything) {
  EXPECT_TRUE(fits("block.3.norm.weight", "block.3.norm.weight"));
  EXPECT_TRUE(fits("block.3.norm.weight", "*"));
  EXPECT_TRUE(fits("block.3.norm.weight", "block.*"));
  EXPECT_TRUE(fits("block.3.norm.weight", "block.*.weight"));
  EXPECT_TRUE(fits("block.3.norm.weight", "*norm*"));
  EXPECT_TRUE(fits("block.3.norm.weight", "**.w*t*"));
  EXPECT_TRUE(fits("abcabd", "*abd")) << "the star takes the first ab too";
  EXPECT_TRUE(fits("", ""));
  EXPECT_TRUE(fits("", "*"));
}

TEST(NamePattern, EverythingElseStandsForItself) {
  EXPECT_FALSE(fits("block.3.norm.weight", "block.3"));
  EXPECT_FALSE(fits("block.3.norm.weight", "lock.*"));
  EXPECT_FALSE(fits("block.3.norm.weight", "block.*.bias"));
  EXPECT_FALSE(fits("block.3", "block.?"));
  EXPECT_FALSE(fits("block.3", "Block.3"));
  EXPECT_FALSE(fits("block.3", ""));
  EXPECT_FALSE(fits("", "a"));
}

TEST(NamePattern, OneOfSeveralIsEnough) {
  EXPECT_TRUE(fits_any("b", {"a", "b"}));
  EXPECT_FALSE(fits_any("c", {"a", "b"}));
  EXPECT_FALSE(fits_any("c", {}));
}

}  // namespace
}  // namespace ballast::parameters
