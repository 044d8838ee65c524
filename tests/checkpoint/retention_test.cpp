// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/checkpoint/step_folders.h"
#include "tests/checkpoint/sample_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ballast::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<uint64_t> steps_in(const fs::path& checkpoints) {
  std::vector<uint64_t> steps;
  for (const StepFolder& folder : list_step_folders(checkpoints)) steps.push_back(folder.step);
  return steps;
}

void save_steps(const fs::path& checkpoints, std::initializer_list<uint64_t> steps) {
  for (const uint64_t step : steps) test::save_sample(checkpoints, step);
}

TEST(Retention, KeepsTheLastAndTheMultiples) {
  const test::TemporaryFolder run;
  save_steps(run.path(), {100, 150, 200, 250, 300, 350});
  EXPECT_THAT(delete_old_checkpoints(run.path(), {.keep_last = 2, .keep_every = 200}),
              ElementsAre(100, 150, 250));
  EXPECT_THAT(steps_in(run.path()), ElementsAre(200, 300, 350));
  EXPECT_THAT(list_step_folders(run.path(), kDeletedSuffix), IsEmpty());
  EXPECT_THAT(delete_old_checkpoints(run.path(), {.keep_last = 1}), ElementsAre(200, 300));
}

TEST(Retention, ZeroKeepsAll) {
  const test::TemporaryFolder run;
  save_steps(run.path(), {1, 2, 3});
  EXPECT_THAT(delete_old_checkpoints(run.path(), {}), IsEmpty());
  EXPECT_THAT(delete_old_checkpoints(run.path(), {.keep_last = 3}), IsEmpty());
  EXPECT_THAT(delete_old_checkpoints(run / "missing", {.keep_last = 1}), IsEmpty());
  EXPECT_THAT(steps_in(run.path()), ElementsAre(1, 2, 3));
}

TEST(Retention, NeverDeletesTheNewestThatVerifies) {
  const test::TemporaryFolder run;
  save_steps(run.path(), {1, 2, 3, 4});
  for (const uint64_t step : {3, 4}) {
    fs::resize_file(run / step_folder_name(step) / "shared.safetensors", 50);
  }
  EXPECT_THAT(delete_old_checkpoints(run.path(), {.keep_last = 2}), ElementsAre(1));
  EXPECT_THAT(steps_in(run.path()), ElementsAre(2, 3, 4));
}

TEST(Retention, DeletesNothingWhenNothingVerifies) {
  const test::TemporaryFolder run;
  save_steps(run.path(), {1, 2});
  for (const uint64_t step : {1, 2}) fs::remove(run / step_folder_name(step) / "manifest.json");
  EXPECT_THAT(delete_old_checkpoints(run.path(), {.keep_last = 1}), IsEmpty());
  EXPECT_THAT(steps_in(run.path()), ElementsAre(1, 2));
}

TEST(RemoveLeftovers, TakesHalfWrittenAndHalfDeletedFoldersOnly) {
  const test::TemporaryFolder run;
  save_steps(run.path(), {1});
  for (const char* name :
       {"step_00000002.tmp", "step_00000001.deleted", "mine.tmp", "step_x.tmp"}) {
    make_folder(run / name);
    write_text_atomically(run / name / "file", "text");
  }
  EXPECT_THAT(remove_leftovers(run.path()),
              UnorderedElementsAre("step_00000002.tmp", "step_00000001.deleted"));
  EXPECT_THAT(steps_in(run.path()), ElementsAre(1));
  EXPECT_TRUE(fs::exists(run / "mine.tmp" / "file"));
  EXPECT_TRUE(fs::exists(run / "step_x.tmp" / "file"));
  EXPECT_THAT(remove_leftovers(run / "missing"), IsEmpty());
}

}  // namespace
}  // namespace ballast::checkpoint
