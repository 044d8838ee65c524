// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/live_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/config/config.h"
#include "ballast/record/run_directory.h"
#include "tests/support/temporary_folder.h"

namespace ballast::serving {
namespace {

using nlohmann::json;

class LiveRunTest : public testing::Test {
 protected:
  // As `ballast train` makes one on this machine.
  record::RunDirectory create() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return create_on(name.data());
  }
  record::RunDirectory create_on(const std::string& host) {
    config::Config config;
    config.training.steps = 4;
    record::RunStart start;
    start.hardware = json{{"hostname", host}}.dump();
    return record::RunDirectory::create(folder_, config::to_toml(config), start);
  }
  void append(int64_t from, int64_t to) {
    record::MetricsLog log(folder_ / "metrics.jsonl", static_cast<uint64_t>(from));
    for (int64_t step = from; step <= to; ++step)
      log.append({{"step", step}, {"loss", 2.5}, {"seconds", 0.5 * static_cast<double>(step)}});
  }
  static KnownOfRun known(const json& news) {
    return {news["life"], news["end"], news["validations_seen"], news["samples_seen"]};
  }

  test::TemporaryFolder parent_;
  fs::path folder_ = parent_.path() / "run";
  LiveRun run_{folder_, 1};
};

TEST_F(LiveRunTest, ItsStateFollowsTheRun) {
  EXPECT_TRUE(run_.may_be_run());
  EXPECT_EQ(run_.news({})["state"], "waiting");
  {
    const record::RunDirectory directory = create();
    EXPECT_EQ(run_.news({})["state"], "starting");
    append(1, 2);
    EXPECT_EQ(run_.news({})["state"], "training");
  }
  const json news = run_.news({});
  EXPECT_EQ(news["state"], "stopped");
  EXPECT_EQ(news["step"], 2);
  EXPECT_EQ(news["steps"], 4);
  EXPECT_EQ(news["seconds_left"], 1.0);
  const record::RunDirectory directory = record::RunDirectory::open(folder_);
  append(3, 4);
  EXPECT_EQ(run_.summary()["state"], "training");  // its last validation may still go on
}

TEST_F(LiveRunTest, ARunThatDidAllItsStepsHasEnded) {
  create();
  append(1, 4);
  EXPECT_EQ(run_.summary()["state"], "ended");
}

TEST_F(LiveRunTest, WhoeverWatchesNeverHoldsTheLock) {
  create();
  append(1, 2);
  for (int i = 0; i < 100; ++i) {
    run_.news({});
    const record::RunDirectory directory = record::RunDirectory::open(folder_);  // is not refused
    run_.news({});
  }
}

TEST_F(LiveRunTest, ARunOfAnotherMachineTrainsWhileItsFileGrows) {
  create_on("elsewhere");
  append(1, 2);
  EXPECT_EQ(run_.summary()["state"], "training");
  fs::last_write_time(folder_ / "metrics.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(run_.summary()["state"], "stopped");
}

TEST_F(LiveRunTest, APageGetsOnlyWhatItDoesNotKnow) {
  const record::RunDirectory directory = create();
  append(1, 2);
  record::SampleLog samples(directory.samples(), 0);
  samples.append(2, "<b>first</b>\nline two");
  const json first = run_.news({});
  EXPECT_EQ(first["anew"], true);
  EXPECT_EQ(first["points"]["step"], json({1, 2}));
  EXPECT_EQ(first["samples"], json::parse(R"([{"step": 2, "text": "<b>first</b>\nline two"}])"));
  const json nothing = run_.news(known(first));
  EXPECT_EQ(nothing["anew"], false);
  EXPECT_TRUE(nothing["points"]["step"].empty());
  EXPECT_FALSE(nothing.contains("validations"));
  EXPECT_FALSE(nothing.contains("samples"));
  append(3, 3);
  samples.append(3, "second");
  const json third = run_.news(known(nothing));
  EXPECT_EQ(third["points"]["step"], json({3}));
  EXPECT_EQ(third["samples"].size(), 2);
  EXPECT_EQ(run_.news({.life = 99, .end = 1 << 30})["points"]["step"], json({1, 2, 3}));
}

TEST_F(LiveRunTest, OfSamplesTheNewestAreShown) {
  const record::RunDirectory directory = create();
  record::SampleLog samples(directory.samples(), 0);
  for (uint64_t step = 1; step <= 200; ++step) samples.append(step, std::string(2000, 'x'));
  const json list = run_.news({})["samples"];
  EXPECT_EQ(list.size(), 8);
  EXPECT_EQ(list.back()["step"], 200);
}

TEST_F(LiveRunTest, ItTellsTheNewestCheckpoint) {
  const record::RunDirectory directory = create();
  EXPECT_TRUE(run_.news({})["checkpoint"].is_null());
  fs::create_directory(directory.checkpoints() / "step_00000002");
  fs::create_directory(directory.checkpoints() / "step_00000003.tmp");
  EXPECT_EQ(run_.news({})["checkpoint"], 2);
}

TEST_F(LiveRunTest, DamagedFilesAndLinksAreARunOfWhichLittleIsKnown) {
  fs::create_directory(folder_);
  std::ofstream(folder_ / "run.json") << "{\"starts\": [3";
  std::ofstream(folder_ / "config.toml") << "steps = = 3";
  std::ofstream(folder_ / "samples.txt") << "no heading\n== step x ==\n== step 7 ==";
  std::ofstream(parent_.path() / "secret") << "== step 1 ==\n  secret\n\n";
  json news = run_.news({});
  EXPECT_EQ(news["state"], "waiting");
  EXPECT_TRUE(news["steps"].is_null());
  EXPECT_TRUE(news["samples"].empty());
  fs::remove(folder_ / "samples.txt");
  fs::create_symlink(parent_.path() / "secret", folder_ / "samples.txt");
  fs::create_symlink(parent_.path() / "secret", folder_ / "lock");
  news = run_.news({});
  EXPECT_TRUE(news["samples"].empty());
  EXPECT_EQ(news["state"], "waiting");
}

TEST_F(LiveRunTest, AFolderThatIsEmptyMayBecomeARun) {
  fs::create_directory(folder_);
  EXPECT_TRUE(run_.may_be_run()) << "a run that starts makes its folder before the lock in it";
  EXPECT_EQ(run_.news({})["state"], "waiting");
}

TEST_F(LiveRunTest, OtherFoldersAreNoRuns) {
  fs::create_directory(folder_);
  std::ofstream(folder_ / "manifest.json") << "{}";
  EXPECT_FALSE(run_.may_be_run());
}

}  // namespace
}  // namespace ballast::serving
