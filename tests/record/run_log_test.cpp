// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include "ballast/system/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json record(uint64_t step) {
  return {{"loss", 1.0 / static_cast<double>(step + 1)}, {"step", step}};
}

std::string lines_of(uint64_t first, uint64_t end) {
  std::string text;
  for (uint64_t step = first; step < end; ++step) text += record(step).dump() + "\n";
  return text;
}

TEST(MetricsLog, LinesAreInTheFileAtOnce) {
  const test::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path, 0);
  for (uint64_t step = 0; step < 5; ++step) {
    log.append(record(step));
    EXPECT_EQ(read_text(path), lines_of(0, step + 1));
  }
}

TEST(MetricsLog, WritesNullForWhatIsNotFinite) {
  const test::TemporaryFolder folder;
  MetricsLog(folder / "m", 0).append({{"step", 1}, {"loss", std::nan("")}, {"x", INFINITY}});
  EXPECT_EQ(read_text(folder / "m"), "{\"loss\":null,\"step\":1,\"x\":null}\n");
}

TEST(MetricsLog, RefusesARecordWithoutAStep) {
  const test::TemporaryFolder folder;
  MetricsLog log(folder / "m", 0);
  EXPECT_THROW(log.append({{"loss", 1.0}}), std::invalid_argument);
  EXPECT_THROW(log.append({{"step", -1}}), std::invalid_argument);
  EXPECT_THROW(log.append({{"step", 1.5}}), std::invalid_argument);
  EXPECT_THROW(log.append(json::array()), std::invalid_argument);
  EXPECT_EQ(read_text(folder / "m"), "");
}

TEST(MetricsLog, ResumingCutsLaterSteps) {
  const test::TemporaryFolder folder;
  const auto path = folder / "m";
  write_text_atomically(path,
                        lines_of(0, 10) + lines_of(7, 8));  // e.g. a validation line of step 7
  MetricsLog(path, 8).append(record(8));
  EXPECT_EQ(read_text(path), lines_of(0, 8) + lines_of(7, 9));
  MetricsLog(path, 0).append(record(0));
  EXPECT_EQ(read_text(path), lines_of(0, 1));
}

TEST(MetricsLog, ResumingRepairsATornLineAtEveryLength) {
  const test::TemporaryFolder folder;
  const auto path = folder / "m";
  const std::string whole = lines_of(0, 3);
  const size_t two = lines_of(0, 2).size();
  for (size_t length = two; length < whole.size(); ++length) {
    write_text_atomically(path, whole.substr(0, length));
    MetricsLog(path, 2).append(record(2));
    EXPECT_EQ(read_text(path), whole) << length;
  }
}

TEST(MetricsLog, ResumingDropsDamagedLines) {
  const test::TemporaryFolder folder;
  const auto path = folder / "m";
  write_text_atomically(
      path, lines_of(0, 1) + std::string(5, '\0') + "\n{\"loss\":1}\n3\n\n" + lines_of(1, 2));
  const MetricsLog log(path, 5);
  EXPECT_EQ(read_text(path), lines_of(0, 2));
}

TEST(MetricsLog, ResumingLeavesACompleteFileAlone) {
  const test::TemporaryFolder folder;
  const auto path = folder / "m";
  write_text_atomically(path, lines_of(0, 3));
  const auto before = fs::last_write_time(path);
  const MetricsLog log(path, 3);
  EXPECT_EQ(fs::last_write_time(path), before);
}

TEST(MetricsLog, AFullDiskLeavesWholeLines) {
  const test::TemporaryFolder folder;
  const auto path = folder / "m";
  const int code = test::run_in_child([&] {
    test::limit_file_size(lines_of(0, 3).size() + 5);
    MetricsLog log(path, 0);
    for (uint64_t step = 0; step < 3; ++step) log.append(record(step));
    try {
      log.append(record(3));
    } catch (const UserError& error) {
      return std::string(error.what()).find(path.string()) == std::string::npos ? 1 : 0;
    }
    return 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_text(path), lines_of(0, 3));
}

TEST(MetricsLog, UnwritableFilesAreNamed) {
  const test::TemporaryFolder folder;
  try {
    MetricsLog(folder / "no" / "folder", 0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no/folder"));
  }
}

TEST(SampleLog, IndentsSoThatATextCannotLookLikeAHeading) {
  const test::TemporaryFolder folder;
  const auto path = folder / "samples.txt";
  {
    SampleLog log(path, 0);
    log.append(10, "one\n== step 99 ==\ntwo");
    log.append(20, "");
    log.append(30, "later");
  }
  const std::string ten = "== step 10 ==\n  one\n  == step 99 ==\n  two\n\n";
  EXPECT_EQ(read_text(path), ten + "== step 20 ==\n  \n\n== step 30 ==\n  later\n\n");
  SampleLog(path, 20).append(20, "again");
  EXPECT_EQ(read_text(path), ten + "== step 20 ==\n  again\n\n");
}

TEST(SampleLog, WhatItWroteIsReadBack) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "samples.txt";
  SampleLog log(path, 0);
  log.append(5, "one\n\n  two\n== step 7 ==");
  log.append(9, "three");
  const std::string text = read_text(path);
  const std::vector<Sample> samples = read_samples(text);
  ASSERT_EQ(samples.size(), 2);
  EXPECT_EQ(samples[0].step, 5);
  EXPECT_EQ(samples[0].text, "one\n\n  two\n== step 7 ==");
  EXPECT_EQ(samples[1].step, 9);
  EXPECT_EQ(samples[1].text, "three");
  const std::vector<Sample> end = read_samples(text.substr(8) + "== step 12");
  ASSERT_EQ(end.size(), 1);
  EXPECT_EQ(end[0].text, "three");
}

}  // namespace
}  // namespace ballast::record
