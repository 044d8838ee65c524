// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ballast/system/error.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const RunStart kStart{0, "0.1.0", {"ballast", "train", "--run", "caf\xe9"}, R"({"cpu":"x"})"};
constexpr std::string_view kConfig = "[model]\nwidth = 64\n";

std::string create_error(const fs::path& path) {
  return test::error_of([&] { RunDirectory::create(path, kConfig, kStart); });
}

std::string open_error(const fs::path& path) {
  return test::error_of([&] { RunDirectory::open(path); });
}

TEST(RunDirectory, CreatesEverything) {
  const test::TemporaryFolder folder;
  const auto path = folder / "runs" / "first";
  EXPECT_FALSE(RunDirectory::is_run(path));
  const RunDirectory run = RunDirectory::create(path, kConfig, kStart);
  EXPECT_TRUE(RunDirectory::is_run(path));
  EXPECT_EQ(run.stored_config(), kConfig);
  EXPECT_TRUE(fs::is_directory(run.checkpoints()));
  EXPECT_TRUE(fs::is_directory(run.tensorboard()));
  const json record = json::parse(read_text(run.record()));
  ASSERT_EQ(record["starts"].size(), 1U);
  EXPECT_EQ(record["starts"][0]["program_version"], "0.1.0");
  EXPECT_EQ(record["starts"][0]["command_line"][1], "train");
  EXPECT_EQ(record["starts"][0]["hardware"]["cpu"], "x");
  EXPECT_EQ(record["starts"][0]["time"].get<std::string>().size(), 20U);
}

TEST(RunDirectory, IsInUseWhileItIsLocked) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(RunDirectory::in_use(folder / "run"));
  {
    const RunDirectory run = RunDirectory::create(folder / "run", kConfig, kStart);
    EXPECT_TRUE(RunDirectory::in_use(folder / "run"));
    const RunDirectory other = RunDirectory::create(folder / "other", kConfig, kStart);
  }
  EXPECT_FALSE(RunDirectory::in_use(folder / "run"));
  EXPECT_FALSE(RunDirectory::in_use(folder / "other"));
}

TEST(RunDirectory, EachStartIsKept) {
  const test::TemporaryFolder folder;
  { RunDirectory::create(folder / "run", kConfig, kStart); }
  {
    RunDirectory run = RunDirectory::open(folder / "run");
    EXPECT_EQ(run.stored_config(), kConfig);
    RunStart resumed = kStart;
    resumed.step = 500;
    run.record_start(resumed);
  }
  const json record = json::parse(read_text(folder / "run" / "run.json"));
  ASSERT_EQ(record["starts"].size(), 2U);
  EXPECT_EQ(record["starts"][0]["step"], 0);
  EXPECT_EQ(record["starts"][1]["step"], 500);
}

TEST(RunDirectory, IsLockedWhileInUse) {
  const test::TemporaryFolder folder;
  {
    const RunDirectory run = RunDirectory::create(folder / "run", kConfig, kStart);
    const int code = test::run_in_child([&] {
      const std::string holder = "process " + std::to_string(::getppid());
      const std::string error = open_error(folder / "run");
      return error.find("already in use") != std::string::npos &&
                     error.find(holder) != std::string::npos
                 ? 0
                 : 1;
    });
    EXPECT_EQ(code, 0);
  }
  EXPECT_EQ(open_error(folder / "run"), "no error");
}

TEST(RunDirectory, NeverTakesWhatIsNotItsOwn) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "file", "text");
  EXPECT_THAT(create_error(folder / "file"), HasSubstr("is a file"));
  EXPECT_THAT(create_error(folder.path()),
              AllOf(HasSubstr("not empty and not a run directory"), HasSubstr("choose another")));
  EXPECT_FALSE(fs::exists(folder / "lock"));
  EXPECT_THAT(open_error(folder.path()), HasSubstr("has no run.json"));
  EXPECT_THAT(open_error(folder / "missing"), HasSubstr("no run directory"));
  EXPECT_FALSE(fs::exists(folder / "missing"));

  { RunDirectory::create(folder / "run", kConfig, kStart); }
  EXPECT_THAT(create_error(folder / "run"), HasSubstr("--resume auto"));

  fs::create_directory(folder / "mine");  // a leftover would have a lock beside it
  write_text_atomically(folder / "mine/config.toml", "my own");
  EXPECT_THAT(create_error(folder / "mine"), HasSubstr("not empty and not a run directory"));
  EXPECT_EQ(read_text(folder / "mine/config.toml"), "my own");
}

TEST(RunDirectory, AnEmptyOrUnfinishedFolderIsTaken) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  EXPECT_EQ(create_error(folder / "empty"), "no error");
  fs::create_directory(folder / "died");
  for (const char* name : {"lock", "config.toml", "run.json.tmp"}) {
    write_text_atomically(folder / "died" / name, "half");
  }
  EXPECT_EQ(create_error(folder / "died"), "no error");
  EXPECT_EQ(RunDirectory::open(folder / "died").stored_config(), kConfig);
}

TEST(RunDirectory, WhatAFailedStartCouldNotClearIsTakenButNoCheckpoint) {
  const test::TemporaryFolder folder;
  for (const char* name : {"tokenizer", "tensorboard", "checkpoints"})
    fs::create_directories(folder / "left" / name);
  write_text_atomically(folder / "left/tokenizer/tokenizer.json", "half");
  EXPECT_NE(create_error(folder / "left"), "no error");  // without a lock it may be the user's own
  write_text_atomically(folder / "left/lock", "");
  fs::create_directory(folder / "left/checkpoints/step_00000004");
  EXPECT_NE(create_error(folder / "left"), "no error");
  fs::remove(folder / "left/checkpoints/step_00000004");
  EXPECT_EQ(create_error(folder / "left"), "no error");
}

TEST(RunDirectory, ADamagedRecordIsRefusedAndLeftAlone) {
  const test::TemporaryFolder folder;
  { RunDirectory::create(folder / "run", kConfig, kStart); }
  const auto record = folder / "run" / "run.json";
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"format":3})", R"({"format":"ballast-run","version":-1})",
        R"({"format":"ballast-run","version":1,"starts":{}})"}) {
    write_text_atomically(record, text);
    EXPECT_THAT(open_error(folder / "run"), HasSubstr("run.json is damaged")) << text;
    EXPECT_EQ(read_text(record), text);
  }
  write_text_atomically(record, R"({"format":"ballast-run","version":2,"starts":[]})");
  EXPECT_THAT(open_error(folder / "run"), HasSubstr("use a newer ballast"));
}

TEST(RunDirectory, UnwritablePlacesAreNamed) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "file", "text");
  EXPECT_THAT(create_error(folder / "file" / "run"), HasSubstr("file/run"));
  const auto run = folder / "run";
  { RunDirectory::create(run, kConfig, kStart); }
  fs::permissions(run, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec);
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::others_exec);
  const auto refused = [](const std::string& error) {
    return error.find("cannot write to the run directory") != std::string::npos &&
           error.find("Permission denied; choose another") != std::string::npos;
  };
  const int code = test::run_in_child([&] {
    // Root may write anywhere: become someone who may not.
    if (::getuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 3;
    if (!refused(create_error(run / "inner"))) return 1;
    return refused(open_error(run)) ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  fs::permissions(run, fs::perms::owner_all);
}

}  // namespace
}  // namespace ballast::record
