// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/retention.h"
#include "ballast/checkpoint/step_folders.h"
#include "ballast/system/error.h"
#include "ballast/system/parallel.h"
#include "tests/checkpoint/sample_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

void expect_holds(const Checkpoint& checkpoint, const std::vector<TensorView>& tensors) {
  for (const TensorView& wanted : tensors) {
    ASSERT_TRUE(checkpoint.has(wanted.name));
    const TensorView got = checkpoint.tensor(wanted.name);
    EXPECT_EQ(got.shape, wanted.shape);
    EXPECT_TRUE(
        std::equal(got.data.begin(), got.data.end(), wanted.data.begin(), wanted.data.end()));
  }
}

// Changes one byte in the middle of the data of a file.
void damage(const fs::path& path) {
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(size - 20);
  const char old = static_cast<char>(file.get());
  file.seekp(size - 20);
  file.put(static_cast<char>(old ^ 1));
}

TEST(Checkpoint, GivesBackWhatWasSaved) {
  const test::TemporaryFolder run;
  const auto path = test::save_sample(run / "checkpoints", 1234);
  EXPECT_EQ(path, run / "checkpoints" / "step_00001234");
  EXPECT_TRUE(list_step_folders(run / "checkpoints", kTemporarySuffix).empty());

  const Checkpoint checkpoint(path);
  const Manifest wanted = test::sample_manifest(1234);
  EXPECT_EQ(checkpoint.manifest().step, 1234U);
  EXPECT_EQ(checkpoint.manifest().data_position, wanted.data_position);
  EXPECT_EQ(checkpoint.manifest().config, wanted.config);
  EXPECT_EQ(checkpoint.manifest().state, wanted.state);
  EXPECT_EQ(checkpoint.manifest().program_version, wanted.program_version);
  EXPECT_THAT(checkpoint.manifest().tensors, SizeIs(7));
  expect_holds(checkpoint, test::SampleTensors(1234, "layer.0.weight", 3, 50).views());
  expect_holds(checkpoint, test::SampleTensors(1234, "layer.6.expert", 4, 50).views());
  EXPECT_FALSE(checkpoint.has("absent"));
  EXPECT_THAT(test::error_of([&] { checkpoint.tensor("absent"); }),
              AllOf(HasSubstr("no tensor 'absent'"), HasSubstr(path.string())));
}

TEST(Checkpoint, FilesCanBeWrittenByManyThreadsAtOnce) {
  const test::TemporaryFolder run;
  constexpr size_t kWorkers = 8;
  CheckpointWriter writer(run / "checkpoints", 1);
  std::vector<std::string> sent(kWorkers);
  parallel_for(kWorkers, kWorkers, [&](size_t rank) {
    const test::SampleTensors mine(1, "expert." + std::to_string(rank), 2, 100);
    sent[rank] = entries_text(write_checkpoint_file(
        {writer.folder(), 1}, "worker_" + std::to_string(rank) + ".safetensors", mine.views()));
  });
  Manifest manifest = test::sample_manifest(1);
  for (const std::string& text : sent) {
    for (const TensorEntry& entry : parse_entries(text)) manifest.tensors.push_back(entry);
  }
  Checkpoint checkpoint(writer.commit(manifest));
  checkpoint.verify(3);
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    const test::SampleTensors wanted(1, "expert." + std::to_string(rank), 2, 100);
    expect_holds(checkpoint, wanted.views());
  }
}

TEST(Checkpoint, HoldsVeryManyTensors) {
  // Reading was once quadratic in their number: this took longer than a test may.
  const test::TemporaryFolder run;
  const std::vector<std::byte> data(4);
  std::vector<TensorView> tensors;
  for (int i = 0; i < 200'000; ++i) tensors.push_back({std::to_string(i), Dtype::kF32, {1}, data});
  CheckpointWriter writer(run / "checkpoints", 1);
  Manifest manifest = test::sample_manifest(1);
  manifest.tensors = write_checkpoint_file({writer.folder(), 1}, "all.safetensors", tensors);
  EXPECT_TRUE(Checkpoint(writer.commit(manifest)).has("199999"));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const test::TemporaryFolder run;
  test::save_sample(run / "checkpoints", 5, 10);
  const auto path = test::save_sample(run / "checkpoints", 5, 20);
  EXPECT_EQ(Checkpoint(path).tensor("layer.0.weight.0").shape, std::vector<int64_t>{20});
  EXPECT_THAT(list_step_folders(run / "checkpoints"), SizeIs(1));
  EXPECT_TRUE(list_step_folders(run / "checkpoints", kTemporarySuffix).empty());
  EXPECT_TRUE(list_step_folders(run / "checkpoints", kDeletedSuffix).empty());
}

TEST(Checkpoint, AnAbandonedWriterLeavesNothing) {
  const test::TemporaryFolder run;
  {
    CheckpointWriter writer(run / "checkpoints", 5);
    write_checkpoint_file({writer.folder(), 5}, "a.safetensors",
                          test::SampleTensors(5, "a", 1, 10).views());
    EXPECT_TRUE(fs::exists(writer.folder() / "a.safetensors"));
  }
  EXPECT_TRUE(fs::is_empty(run / "checkpoints"));
}

TEST(Checkpoint, CommitRefusesTwoTensorsOfOneName) {
  const test::TemporaryFolder run;
  CheckpointWriter writer(run / "checkpoints", 5);
  Manifest manifest = test::sample_manifest(5);
  const test::SampleTensors tensors(5, "a", 1, 10);
  manifest.tensors = write_checkpoint_file({writer.folder(), 5}, "a.safetensors", tensors.views());
  manifest.tensors.push_back(
      write_checkpoint_file({writer.folder(), 5}, "b.safetensors", tensors.views())[0]);
  EXPECT_THROW(writer.commit(manifest), std::invalid_argument);
}

TEST(Checkpoint, DamageIsFoundByTensorAndByVerify) {
  const test::TemporaryFolder run;
  const auto path = test::save_sample(run / "checkpoints", 7);
  damage(path / "experts.safetensors");
  Checkpoint checkpoint(path);
  expect_holds(checkpoint, test::SampleTensors(7, "layer.0.weight", 3, 50).views());
  const auto wanted =
      AllOf(HasSubstr("tensor 'layer.6.expert.3'"), HasSubstr("experts.safetensors"));
  EXPECT_THAT(test::error_of([&] { checkpoint.tensor("layer.6.expert.3"); }), wanted);
  EXPECT_THAT(test::error_of([&] { checkpoint.verify(); }), wanted);
}

TEST(Checkpoint, SaysWhatIsWrongWithAFolder) {
  const test::TemporaryFolder run;
  const auto path = test::save_sample(run / "checkpoints", 7);
  const auto error = [&] { return test::error_of([&] { Checkpoint{path}; }); };
  const auto other = test::save_sample(run / "others", 7, 60);

  fs::rename(path / "experts.safetensors", path / "away");
  EXPECT_THAT(error(), AllOf(HasSubstr("experts.safetensors"), HasSubstr("No such file")));
  fs::copy_file(other / "experts.safetensors", path / "experts.safetensors");
  EXPECT_THAT(error(), HasSubstr("'layer.6.expert.0' is F32 [50] in its manifest and F32 [60]"));
  fs::remove(path / "experts.safetensors");
  fs::copy_file(path / "shared.safetensors", path / "experts.safetensors");
  EXPECT_THAT(error(), HasSubstr("lacks tensor 'layer.6.expert.0'"));
  fs::resize_file(path / "experts.safetensors", 100);
  EXPECT_THAT(error(), HasSubstr("cut short"));
  test::SampleTensors more(7, "layer.6.expert", 5, 50);
  write_safetensors(path / "experts.safetensors", more.views());
  EXPECT_THAT(error(), HasSubstr("it holds 8 tensors, its manifest lists 7"));
  fs::remove(path / "manifest.json");
  EXPECT_THAT(error(), HasSubstr("no manifest.json"));
}

TEST(Checkpoint, AManifestCannotPointOutsideItsFolder) {
  const test::TemporaryFolder run;
  Manifest manifest = test::sample_manifest(1);
  const test::SampleTensors tensors(1, "a", 1, 10);
  write_safetensors(run / "secret.safetensors", tensors.views());
  for (const std::string file : {"../secret.safetensors", "/etc/passwd", "", "a/b", "..", "."}) {
    make_folder(run / "step_00000001");
    manifest.tensors = {{"a.0", file, Dtype::kF32, {10}, 0}};
    write_text_atomically(run / "step_00000001" / "manifest.json", manifest_text(manifest));
    EXPECT_NE(test::error_of([&] { Checkpoint{run / "step_00000001"}; }), "no error") << file;
  }
}

TEST(FindNewestValid, PassesOverTheDamagedAndSaysWhy) {
  const test::TemporaryFolder run;
  const auto checkpoints = run / "checkpoints";
  EXPECT_FALSE(find_newest_valid(checkpoints).checkpoint);
  for (const uint64_t step : {1, 2, 3, 4, 5}) test::save_sample(checkpoints, step);
  damage(checkpoints / "step_00000005" / "shared.safetensors");
  fs::resize_file(checkpoints / "step_00000004" / "experts.safetensors", 300);
  fs::remove(checkpoints / "step_00000003" / "manifest.json");
  fs::create_directory(checkpoints / "step_00000006.tmp");
  fs::create_directory(checkpoints / "step_7");  // not a name we write
  write_text_atomically(checkpoints / "step_00000008", "not a folder");

  const NewestValid newest = find_newest_valid(checkpoints);
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest().step, 2U);
  ASSERT_THAT(newest.passed_over, SizeIs(4));
  EXPECT_THAT(newest.passed_over[0].reason, HasSubstr("interrupted"));
  EXPECT_THAT(newest.passed_over[1].reason, HasSubstr("tensor 'layer.0.weight.2'"));
  EXPECT_THAT(newest.passed_over[2].reason, HasSubstr("cut short"));
  EXPECT_THAT(newest.passed_over[3].reason, HasSubstr("no manifest.json"));
  for (const PassedOver& passed : newest.passed_over) {
    EXPECT_THAT(passed.reason, HasSubstr(passed.path.string()));
  }
}

TEST(FindNewestValid, OrdersStepsAsNumbers) {
  const test::TemporaryFolder run;
  for (const uint64_t step : {99999999, 100000000, 7}) test::save_sample(run.path(), step);
  EXPECT_EQ(find_newest_valid(run.path()).checkpoint->manifest().step, 100000000U);
}

TEST(OpenCheckpoint, AcceptsEveryWayToNameOne) {
  const test::TemporaryFolder run;
  test::save_sample(run / "checkpoints", 1);
  const auto newest = test::save_sample(run / "checkpoints", 2);
  EXPECT_EQ(open_checkpoint(run.path()).manifest().step, 2U);
  EXPECT_EQ(open_checkpoint(run / "checkpoints").manifest().step, 2U);
  EXPECT_EQ(open_checkpoint(run / "checkpoints" / "step_00000001").manifest().step, 1U);
  EXPECT_EQ(open_checkpoint(newest / "").manifest().step, 2U);

  const test::SampleTensors weights(9, "layer.0.weight", 3, 50);
  export_weights(run / "weights.safetensors", weights.views(), test::sample_manifest(9));
  Checkpoint exported = open_checkpoint(run / "weights.safetensors");
  EXPECT_EQ(exported.manifest().step, 9U);
  EXPECT_EQ(exported.manifest().config, test::sample_manifest(9).config);
  exported.verify();
  expect_holds(exported, weights.views());
}

TEST(OpenCheckpoint, SaysWhatIsWrong) {
  const test::TemporaryFolder run;
  const auto error = [&](const fs::path& path) {
    return test::error_of([&] { open_checkpoint(path); });
  };
  EXPECT_THAT(error(run / "missing"), HasSubstr("no checkpoint at"));
  EXPECT_THAT(error(run.path()), HasSubstr("there is no checkpoint in"));
  make_folder(run / "checkpoints" / "step_00000001");
  EXPECT_THAT(error(run / "checkpoints" / "step_00000001"), HasSubstr("no manifest.json"));
  EXPECT_THAT(error(run.path()), AllOf(HasSubstr("no checkpoint in"), HasSubstr("can be used"),
                                       HasSubstr("step_00000001")));

  const test::SampleTensors weights(9, "w", 3, 50);
  write_safetensors(run / "foreign.safetensors", weights.views());
  EXPECT_THAT(error(run / "foreign.safetensors"), HasSubstr("not written by `ballast export`"));
  export_weights(run / "weights.safetensors", weights.views(), test::sample_manifest(9));
  damage(run / "weights.safetensors");
  EXPECT_THAT(test::error_of([&] { open_checkpoint(run / "weights.safetensors").verify(); }),
              HasSubstr("tensor 'w.2'"));
  EXPECT_THAT(test::error_of([&] { open_checkpoint(run / "weights.safetensors").tensor("w.2"); }),
              AllOf(HasSubstr("tensor 'w.2'"), HasSubstr("use another checkpoint")));
  write_text_atomically(run / "text", "hello, this is not a checkpoint");
  EXPECT_THAT(error(run / "text"),
              AllOf(HasSubstr("not a valid safetensors file"), HasSubstr("use another")));
}

TEST(OpenCheckpoint, StepFoldersReadFromAnywhere) {
  const test::TemporaryFolder run;
  const auto path = test::save_sample(run / "checkpoints", 3);
  fs::rename(path, run / "best");
  EXPECT_EQ(open_checkpoint(run / "best").manifest().step, 3U);
}

TEST(Checkpoint, ALinkUnderTheTemporaryNameIsNotFollowed) {
  const test::TemporaryFolder run;
  fs::create_directories(run / "home/precious");
  fs::create_directories(run / "checkpoints");
  fs::create_directory_symlink(run / "home", run / "checkpoints/step_00000003.tmp");
  const fs::path saved = test::save_sample(run / "checkpoints", 3);
  EXPECT_FALSE(fs::is_symlink(saved));
  EXPECT_TRUE(fs::exists(run / "home/precious"));
  EXPECT_FALSE(fs::exists(run / "home/manifest.json"));
}

TEST(Checkpoint, AManifestOfAnotherStepThanItsFoldersIsRefusedAndPassedOver) {
  const test::TemporaryFolder run;
  const fs::path checkpoints = run / "checkpoints";
  test::save_sample(checkpoints, 2);
  fs::copy(test::save_sample(checkpoints, 3), checkpoints / "step_00000009");
  EXPECT_THAT(test::error_of([&] { Checkpoint(checkpoints / "step_00000009" / ""); }),
              HasSubstr("is not what its name says: its manifest is of step 3"));
  const NewestValid newest = find_newest_valid(checkpoints);
  EXPECT_EQ(newest.checkpoint->manifest().step, 3U);
  ASSERT_EQ(newest.passed_over.size(), 1U);
  EXPECT_THAT(newest.passed_over[0].reason, testing::HasSubstr("step_00000009"));
}

// A training that keeps one checkpoint saves and deletes while others look for the newest.
TEST(Checkpoint, TheNewestIsFoundWhileCheckpointsRotate) {
  const test::TemporaryFolder run;
  test::save_sample(run.path(), 1);
  std::atomic<bool> done = false;
  std::thread training([&] {
    for (uint64_t step = 2; !done; ++step) {
      const fs::path saved = test::save_sample(run.path(), step);
      delete_old_checkpoints(run.path(), {.keep_last = 1, .just_written = saved});
    }
  });
  uint64_t newest = 0;
  for (int i = 0; i < 300 || newest < 20; ++i) {
    const NewestValid found = find_newest_valid(run.path(), 1);
    EXPECT_TRUE(found.checkpoint) << (found.passed_over.empty() ? "none was listed"
                                                                : found.passed_over[0].reason);
    if (!found.checkpoint) break;
    EXPECT_GE(found.checkpoint->manifest().step, newest);
    newest = found.checkpoint->manifest().step;
  }
  done = true;
  training.join();
}

}  // namespace
}  // namespace ballast::checkpoint
