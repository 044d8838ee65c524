// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/nearest.h"

#include <gtest/gtest.h>

#include "ballast/config/config.h"

namespace ballast::config {
namespace {

const std::vector<std::string> kCommands = {"prepare",  "train", "eval",
                                            "generate", "bench", "help"};
const std::vector<std::string> kOptions = {"--json", "--steps", "--model.width", "--training.steps",
                                           "--training.max_time"};

TEST(Nearest, AMistypedWordIsRecognised) {
  EXPECT_EQ(nearest("trian", kCommands), "train");   // two letters changed places
  EXPECT_EQ(nearest("trai", kCommands), "train");    // one is missing
  EXPECT_EQ(nearest("trainn", kCommands), "train");  // one is too many
  EXPECT_EQ(nearest("genarete", kCommands), "generate");
  EXPECT_EQ(nearest("--stepz", kOptions), "--steps");
  EXPECT_EQ(nearest("--model.widht", kOptions), "--model.width");
}

TEST(Nearest, WhatIsFarFromAllIsNot) {
  for (const char* word : {"", "x", "fly", "tokenise", "--verbose", "training"})
    EXPECT_EQ(nearest(word, kCommands), "") << word;
  EXPECT_EQ(nearest("--verbose", kOptions), "");
  EXPECT_EQ(nearest("--s", kOptions), "");
  EXPECT_EQ(nearest("train", {}), "");
}

TEST(Nearest, AKeyWithoutItsSectionMeansTheWholeOne) {
  EXPECT_EQ(nearest("--width", kOptions), "--model.width");
  EXPECT_EQ(nearest("max_tiem", kOptions), "--training.max_time");
  EXPECT_EQ(nearest("--steps", kOptions), "--steps") << "a whole name is nearer";
}

TEST(Nearest, ASentenceEndsWithItOrWithoutAWord) {
  EXPECT_EQ(nearest_is("trian", kCommands), "; the nearest is train");
  EXPECT_EQ(nearest_is("labtop", {"laptop"}, "[{}]"), "; the nearest is [laptop]");
  EXPECT_EQ(nearest_is("verbose", kCommands), "");
}

}  // namespace
}  // namespace ballast::config
