// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/live_metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "ballast/record/run_log.h"
#include "tests/support/temporary_folder.h"

namespace ballast::serving {
namespace {

std::string step_line(int64_t step, double loss = 2) {
  return fmt::format(
      R"({{"layers":[{{"assign_seconds":0.25,"greedy_share":0.5,"layer":1}},)"
      R"({{"assign_seconds":0.5,"greedy_share":0.7,"layer":2}}],"loss":{},"seconds":{},"step":{},)"
      R"("tokens":{},"tokens_per_second":100}})"
      "\n",
      loss, 0.5 * static_cast<double>(step), step, 64 * step);
}

std::string validation_line(int64_t step) {
  return fmt::format(
      R"({{"experts":[{{"busiest_share":1.25,"layer":1}},{{"busiest_share":1.5,"layer":2}}],)"
      R"("step":{},"valid_floor":0.3,"valid_loss":1.75,"valid_perplexity":5.75,"valid_tokens":900}})"
      "\n",
      step);
}

class LiveMetricsTest : public testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  void refresh_all() {
    do metrics_.refresh();
    while (metrics_.is_behind());
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const LivePoint& point : metrics_.points()) steps.push_back(point.step);
    return steps;
  }
  std::vector<int64_t> validated() const {
    std::vector<int64_t> steps;
    for (const LiveValidation& point : metrics_.validations()) steps.push_back(point.step);
    return steps;
  }

  test::TemporaryFolder folder_;
  fs::path file_ = folder_ / "metrics.jsonl";
  LiveMetrics metrics_{file_, 7};
};

TEST_F(LiveMetricsTest, AMissingFileIsARunWithoutSteps) {
  metrics_.refresh();
  EXPECT_TRUE(metrics_.points().empty());
  EXPECT_FALSE(metrics_.mark());
  EXPECT_TRUE(std::isnan(metrics_.step_seconds()));
}

TEST_F(LiveMetricsTest, WhatALineSaysIsTold) {
  append(step_line(1, 3.5) + validation_line(1) + step_line(2));
  metrics_.refresh();
  ASSERT_EQ(metrics_.points().size(), 2);
  const LivePoint& point = metrics_.points().front();
  EXPECT_EQ(point.step, 1);
  EXPECT_EQ(point.loss, 3.5);
  EXPECT_EQ(point.tokens, 64);
  EXPECT_EQ(point.tokens_per_second, 100);
  EXPECT_EQ(point.assign_seconds, 0.75);  // over both layers
  EXPECT_DOUBLE_EQ(point.greedy_share, 0.6);
  EXPECT_TRUE(std::isnan(point.dropped_share));
  ASSERT_EQ(metrics_.validations().size(), 1);
  const LiveValidation& validation = metrics_.validations().front();
  EXPECT_EQ(validation.loss, 1.75);
  EXPECT_EQ(validation.perplexity, 5.75);
  EXPECT_EQ(validation.tokens, 900);
  EXPECT_EQ(validation.floor, 0.3);
  EXPECT_EQ(validation.busiest_share, 1.5);
  EXPECT_EQ(metrics_.step_seconds(), 0.5);
}

TEST_F(LiveMetricsTest, ALineThatIsBeingWrittenIsLeftForTheNextTime) {
  const std::string line = step_line(2);
  append(step_line(1) + line.substr(0, 40));
  metrics_.refresh();
  EXPECT_THAT(steps(), testing::ElementsAre(1));
  append(line.substr(40, line.size() - 41));  // all but its end
  metrics_.refresh();
  EXPECT_THAT(steps(), testing::ElementsAre(1));
  append("\n");
  metrics_.refresh();
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2));
  EXPECT_EQ(metrics_.end(), fs::file_size(file_));
}

TEST_F(LiveMetricsTest, DamagedLinesArePassedOver) {
  append("{\"step\": 1, \"loss\"\n\n[1]\n\"step\"\n{\"loss\": 2}\nnull\n" + std::string(50, '\0') +
         "\n" + std::string(3'000'000, 'x') + "\n{\"step\": \"a\", \"loss\": []}\n" + step_line(9));
  refresh_all();
  ASSERT_FALSE(steps().empty());
  EXPECT_EQ(steps().back(), 9);
  EXPECT_LE(steps().size(), 2);
}

TEST_F(LiveMetricsTest, NumbersThatAreNotFiniteAreUnknown) {
  append(R"({"step": 4, "loss": null, "seconds": "x", "layers": [{}, 3, null]})"
         "\n");
  metrics_.refresh();
  ASSERT_THAT(steps(), testing::ElementsAre(4));
  EXPECT_TRUE(std::isnan(metrics_.points()[0].loss));
  EXPECT_TRUE(std::isnan(metrics_.points()[0].assign_seconds));
}

TEST_F(LiveMetricsTest, ARunThatGoesOnWhereItStoppedKeepsItsLife) {
  append(step_line(1) + step_line(2));
  metrics_.refresh();
  const uint64_t life = metrics_.life();
  record::MetricsLog(file_, 3);  // removes nothing
  append(step_line(3));
  metrics_.refresh();
  EXPECT_EQ(metrics_.life(), life);
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3));
}

TEST_F(LiveMetricsTest, ARunThatGoesOnFromAnEarlierStepStartsAnew) {
  for (int64_t step = 1; step <= 6; ++step) append(step_line(step));
  append(validation_line(6));
  metrics_.refresh();
  const uint64_t life = metrics_.life();
  record::MetricsLog(file_, 4);  // as training does it: steps from 4 on are done again
  for (int64_t step = 4; step <= 9; ++step) append(step_line(step, 1));
  metrics_.refresh();
  EXPECT_NE(metrics_.life(), life);
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(metrics_.points()[5].loss, 1);
  EXPECT_TRUE(metrics_.validations().empty());
}

TEST_F(LiveMetricsTest, AFileThatWasCutAndHasGrownAgainStartsAnew) {
  append(step_line(1) + step_line(2) + step_line(3));
  metrics_.refresh();
  const uint64_t life = metrics_.life();
  fs::resize_file(file_, step_line(1).size());
  append(step_line(2, 9) + step_line(3, 9) +
         step_line(4, 9));  // the same file, and longer than before
  metrics_.refresh();
  EXPECT_NE(metrics_.life(), life);
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(metrics_.points()[1].loss, 9);
}

TEST_F(LiveMetricsTest, AFileThatIsRemovedTakesItsStepsWithIt) {
  append(step_line(1));
  metrics_.refresh();
  const uint64_t life = metrics_.life();
  fs::remove(file_);
  metrics_.refresh();
  EXPECT_NE(metrics_.life(), life);
  EXPECT_TRUE(steps().empty());
  append(step_line(1) + step_line(2));
  metrics_.refresh();
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2));
}

TEST_F(LiveMetricsTest, LinksAndPipesAreNotRead) {
  const fs::path elsewhere = folder_.path() / "elsewhere";
  std::ofstream(elsewhere) << step_line(1);
  fs::create_symlink(elsewhere, file_);
  metrics_.refresh();
  EXPECT_TRUE(steps().empty());
  fs::remove(file_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  metrics_.refresh();  // does not wait for a writer
  EXPECT_TRUE(steps().empty());
  fs::remove(file_);
  fs::create_directory(file_);
  metrics_.refresh();
  EXPECT_TRUE(steps().empty());
}

TEST_F(LiveMetricsTest, OfALongRunFewStepsAndAllValidationsAreRead) {
  constexpr int64_t kSteps = 40'000;
  std::string text;
  for (int64_t step = 1; step <= kSteps; ++step) {
    text += step_line(step);
    if (step % 400 == 0) text += validation_line(step);
  }
  append(text);
  metrics_.refresh();
  const size_t first = metrics_.points().size();
  refresh_all();
  const std::vector<int64_t> read = steps();
  EXPECT_EQ(read.size(), first);  // the rest of the search is for validations
  EXPECT_LE(read.size(), LiveMetrics::kMostPoints);
  EXPECT_GE(read.size(), LiveMetrics::kFewPoints / 2);
  EXPECT_TRUE(std::ranges::is_sorted(read, std::less_equal<>())) << "each step once";
  EXPECT_LE(read.front(), 2);
  EXPECT_EQ(read.back(), kSteps);
  for (size_t i = 1; i < read.size(); ++i) EXPECT_LE(read[i] - read[i - 1], kSteps / 500);
  EXPECT_EQ(validated().size(), kSteps / 400);
  EXPECT_TRUE(std::ranges::is_sorted(validated()));
  for (int64_t step = kSteps + 1; step <= kSteps + 10; ++step) append(step_line(step));
  refresh_all();
  EXPECT_EQ(steps().size(), read.size() + 10);
  EXPECT_EQ(metrics_.step_seconds(), 0.5);
}

TEST_F(LiveMetricsTest, PointsAreThinnedOutAsTheyCome) {
  int64_t step = 0;
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += step_line(++step);
    append(text);
    refresh_all();
    ASSERT_LE(metrics_.points().size(), LiveMetrics::kMostPoints);
  }
  const std::vector<int64_t> read = steps();
  EXPECT_GE(read.size(), LiveMetrics::kFewPoints / 2);
  EXPECT_EQ(read.back(), step);
  EXPECT_EQ(std::set(read.begin(), read.end()).size(), read.size());
  for (size_t i = 1; i < read.size(); ++i) EXPECT_LE(read[i] - read[i - 1], 30);
}

}  // namespace
}  // namespace ballast::serving
