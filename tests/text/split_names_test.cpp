// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/split_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast::text {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SplitNames, AreWholeWordsInAnyCase) {
  for (const char* name : {"train", "wiki.train.txt", "TRAIN-00000-of-00001.parquet", "a_train2"})
    EXPECT_THAT(splits_named(name), ElementsAre(Split::kTrain)) << name;
  for (const char* name : {"valid", "val.jsonl", "x-validation.txt.gz", "Val_1"})
    EXPECT_THAT(splits_named(name), ElementsAre(Split::kValid)) << name;
  EXPECT_THAT(splits_named("wiki.test.tokens"), ElementsAre(Split::kTest));
  for (const char* name :
       {"latest", "pretrain", "contest.txt", "tests", "interval", "training", ""})
    EXPECT_THAT(splits_named(name), IsEmpty()) << name;
  EXPECT_THAT(splits_named("train_test.txt"), ElementsAre(Split::kTrain, Split::kTest));
}

TEST(SplitNames, TheInnermostNameOfAPathTells) {
  EXPECT_EQ(split_of_path("corpus/train/a.txt"), Split::kTrain);
  EXPECT_EQ(split_of_path("train/test/a.txt"), Split::kTest);
  EXPECT_EQ(split_of_path("test/a.train.txt"), Split::kTrain);
  EXPECT_EQ(split_of_path("corpus/a.txt"), Split::kUnsaid);
  // One that speaks of several tells nothing.
  EXPECT_EQ(split_of_path("valid/train_test.txt"), Split::kValid);
}

TEST(SplitNames, AreTakenOutOfNames) {
  EXPECT_EQ(without_split_words("wiki.train"), "wiki");
  EXPECT_EQ(without_split_words("train-wiki"), "wiki");
  EXPECT_EQ(without_split_words("wiki-valid-2"), "wiki-2");
  EXPECT_EQ(without_split_words("train"), "");
  EXPECT_EQ(without_split_words("latest"), "latest");
}

}  // namespace
}  // namespace ballast::text
