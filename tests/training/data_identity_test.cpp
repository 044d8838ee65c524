// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/data_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<checkpoint::DataEntry> kBefore = {
    {"train", "a", "1"}, {"train", "b", "2"}, {"valid", "v", "3"}, {"tokenizer", "t", "4"}};

TEST(DataIdentity, NamesDoNotCountAndContentsDo) {
  std::vector<checkpoint::DataEntry> now = kBefore;
  for (checkpoint::DataEntry& entry : now) entry.name += " moved";
  EXPECT_THAT(data_differences(kBefore, now), ElementsAre());
  now[1].fingerprint = "5";
  EXPECT_THAT(data_differences(kBefore, now), ElementsAre("training data: b (2) -> b moved (5)"));
}

TEST(DataIdentity, WhatIsMissingOrMoreIsToldOf) {
  const std::vector<checkpoint::DataEntry> fewer = {kBefore[0], kBefore[3]};
  EXPECT_THAT(data_differences(kBefore, fewer),
              ElementsAre("training data: b (2) -> none", "validation data: v (3) -> none"));
  EXPECT_THAT(data_differences(fewer, kBefore),
              ElementsAre("training data: none -> b (2)", "validation data: none -> v (3)"));
}

TrainingData data_with_bytes() {
  TrainingData data;
  data.tokenizer = tokenizer::load_tokenizer("bytes");
  data.identity = kBefore;
  return data;
}

TEST(DataIdentity, ACheckpointThatDoesNotTellOfItsDataIsNoReasonToRefuse) {
  const test::TemporaryFolder run;
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(check_data_of_run(run.path(), {}, data_with_bytes()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("are not compared"));
}

TEST(DataIdentity, ADamagedCopyOfTheTokenizerIsToldOfAndNotInTheWay) {
  const test::TemporaryFolder run;
  const TrainingData data = data_with_bytes();
  data.tokenizer->save(run / "tokenizer");
  EXPECT_NO_THROW(check_data_of_run(run.path(), kBefore, data));
  write_text_atomically(run / "tokenizer/tokenizer.json", "{");
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(check_data_of_run(run.path(), kBefore, data));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("written again")));
}

}  // namespace
}  // namespace ballast::training
