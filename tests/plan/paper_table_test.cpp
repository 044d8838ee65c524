// SPDX-License-Identifier: Apache-2.0
// The paper's table of efficiency: tokens a second on 128 V100 of 32 GB, 8 to a machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ballast/studio/plan/plan.h"

namespace ballast::plan {
namespace {

struct Published {
  std::string preset;
  double tokens_per_second;
  config::Config config;
};

const std::vector<Published>& paper_table() {
  static const std::vector<Published> table = [] {
    std::vector<Published> rows = {{"dense_1.5b", 600e3, {}}, {"dense_3b", 224e3, {}},
                                   {"moe_52b", 292e3, {}},    {"switch_52b", 469e3, {}},
                                   {"base_44b", 545e3, {}},   {"base_x2", 475e3, {}}};
    for (Published& row : rows)
      config::read_config_file(row.config,
                               BALLAST_SOURCE_DIR "/configs/paper_" + row.preset + ".toml");
    return rows;
  }();
  return table;
}

// As the authors trained: gradients are summed after the backward pass. Assignment is timed as this
// program's solver: what theirs took is not published.
Cluster paper_cluster() {
  return {.workers = 128,
          .device = find_device("v100"),
          .network = find_network("infiniband"),
          .overlap_gradients = false};
}

double error_of(const Published& row, const Cluster& cluster) {
  return make_plan(row.config, cluster).own().tokens_per_second / row.tokens_per_second - 1;
}

// All that is fitted: one efficiency of computing, two constants of the network.
struct Constants {
  double efficiency, bandwidth, latency;
};

double largest_error(const Constants& constants, const std::vector<Published>& rows,
                     Cluster cluster = paper_cluster()) {
  cluster.device.efficiency = constants.efficiency;
  cluster.network.bandwidth = constants.bandwidth;
  cluster.network.latency = constants.latency;
  double most = 0;
  for (const Published& row : rows) most = std::max(most, std::abs(error_of(row, cluster)));
  return most;
}

// Makes the largest error of the rows as small as can be: the best of a grid of 9 x 9 x 9 around
// the best so far, again and again, each time a smaller one. (A search along the slope would stop
// in a kink of the largest error.)
Constants fit(const std::vector<Published>& rows, const Cluster& cluster = paper_cluster()) {
  Constants best{.efficiency = 0.5, .bandwidth = 12.5e9, .latency = 5e-6};
  double error = largest_error(best, rows, cluster);
  for (double reach = 1; reach > 2e-3; reach *= 0.6) {
    const Constants middle = best;
    for (int i = 0; i < 9 * 9 * 9; ++i) {
      const auto shifted = [&](double value, double by, int digit) {
        return value * std::exp(by * reach * (digit % 9 - 4));
      };
      const Constants tried{.efficiency = shifted(middle.efficiency, 0.15, i),
                            .bandwidth = shifted(middle.bandwidth, 0.25, i / 9),
                            .latency = shifted(middle.latency, 0.5, i / 81)};
      const double now = largest_error(tried, rows, cluster);
      if (now < error) {
        error = now;
        best = tried;
      }
    }
  }
  return best;
}

TEST(PaperTable, PredictionsAreWithin7PercentOfWhatWasPublished) {
  fmt::print("{:<14}{:>12}{:>12}{:>10}\n", "", "published", "predicted", "error");
  for (const Published& row : paper_table()) {
    const double error = error_of(row, paper_cluster());
    fmt::print("{:<14}{:>11.0f}k{:>11.0f}k{:>+9.1f}%\n", row.preset, row.tokens_per_second / 1e3,
               row.tokens_per_second * (1 + error) / 1e3, 100 * error);
    EXPECT_LT(std::abs(error), 0.07) << row.preset;  // 6.7 % was the most, 15 % asked for
  }
}

TEST(PaperTable, TheConstantsAreThoseThatAFitFinds) {
  const Constants found = fit(paper_table());
  const Cluster cluster = paper_cluster();
  fmt::print(
      "efficiency {:.4f}, {:.3f} GB/s a machine, {:.2f} us a message; largest error {:.2f}%\n",
      found.efficiency, found.bandwidth / 1e9, found.latency * 1e6,
      100 * largest_error(found, paper_table()));
  // Those in the source are rounded to two or three digits.
  EXPECT_NEAR(cluster.device.efficiency / found.efficiency, 1, 0.01);
  EXPECT_NEAR(cluster.network.bandwidth / found.bandwidth, 1, 0.02);
  EXPECT_NEAR(cluster.network.latency, found.latency, 0.5e-6);
}

// The link of a pair was chosen with the table in sight; docs/plan.md tells what the other choice,
// two links instead of one, would have given.
TEST(PaperTable, TwoLinksOfAPairWouldHaveFittedWorse) {
  Cluster cluster = paper_cluster();
  cluster.device.pair_bandwidth = 40e9;
  const Constants found = fit(paper_table(), cluster);
  const double error = largest_error(found, paper_table(), cluster);
  fmt::print("efficiency {:.4f}, {:.3f} GB/s a machine, {:.2f} us a message; largest {:.2f}%\n",
             found.efficiency, found.bandwidth / 1e9, found.latency * 1e6, 100 * error);
  EXPECT_NEAR(error, 0.096, 0.001);
}

// What the fit is worth: a system that it did not see.
TEST(PaperTable, EachSystemIsPredictedWithin12PercentByAFitToTheOthers) {
  for (size_t left_out = 0; left_out < paper_table().size(); ++left_out) {
    std::vector<Published> others = paper_table();
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    const double error = largest_error(fit(others), {paper_table()[left_out]});
    fmt::print("{:<14}{:>9.1f}%\n", paper_table()[left_out].preset, 100 * error);
    // 11.5 % was the most: of Switch, whose messages tell most of the network's bandwidth.
    EXPECT_LT(error, 0.12) << paper_table()[left_out].preset;
  }
}

TEST(PaperTable, TheOrderOfTheSystemsIsThePapers) {
  const auto speed = [](const char* preset) {
    const auto row = std::ranges::find(paper_table(), preset, &Published::preset);
    return make_plan(row->config, paper_cluster()).own().tokens_per_second;
  };
  EXPECT_GT(speed("dense_1.5b"), speed("base_44b"));
  EXPECT_GT(speed("base_44b"), speed("base_x2"));
  EXPECT_GT(speed("base_x2"), speed("switch_52b"));
  EXPECT_GT(speed("switch_52b"), speed("moe_52b"));
  EXPECT_GT(speed("moe_52b"), speed("dense_3b"));
}

TEST(PaperTable, WhatThePaperTrainedFitsItsMemoryAndTheNextSizeDoesNot) {
  for (const Published& row : paper_table())
    EXPECT_TRUE(make_plan(row.config, paper_cluster()).own().fits) << row.preset;
  // "roughly 1.5B parameters" is the most that data parallel can hold.
  config::Config whole = paper_table()[1].config;
  whole.training.model_parallel = 1;
  const Plan plan = make_plan(whole, paper_cluster());
  EXPECT_FALSE(plan.own().fits);
  // Two shards each, as in the paper; or the optimizer's state divided, which its authors had not.
  using testing::StartsWith;
  EXPECT_THAT(plan.advice, testing::Contains(StartsWith("--model-parallel 2")));
  EXPECT_THAT(plan.advice, testing::Contains(StartsWith("--training.shard_optimizer true")));
}

}  // namespace
}  // namespace ballast::plan
