// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp. Muon, the average of weights and frozen parameters,
// divided in every way that the workers' number allows, against a trainer that is alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/training/trainer.h"
#include "tests/comm/divisions.h"
#include "tests/comm/workers.h"
#include "tests/support/lone_worker.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"

namespace ballast::training {
namespace {

using at::Tensor;
using comm::WorkerGrid;
using config::Config;
using test::everyone;
using test::kDouble;
using test::lone_worker;
using test::losses;

constexpr int64_t kSteps = 6, kSaved = 3;

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, 23); }

Config muon_config() {
  Config config;
  config.model = {
      .vocabulary = 23, .width = 16, .layers = 2, .heads = 4, .hidden = 24, .context = 12};
  config.experts.layers = 1;
  config.experts.count = 8;
  config.experts.sublayers = 1;
  config.experts.groups = 8;
  config.experts.shared = 0.5;
  config.training.batch = 8;
  config.training.steps = kSteps;
  config.optimizer.algorithm = config::Algorithm::kMuon;
  config.optimizer.learning_rate = 2e-2;
  config.optimizer.warmup_steps = 3;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.clip_norm = 0.5;
  config.optimizer.average = 0.8;
  config.optimizer.schedule = config::Schedule::kCosine;
  return config;
}

// What this worker holds of each parameter in a buffer is what the whole has there.
void expect_part_of(const Trainer& part, const Trainer& whole,
                    const Tensor& (parameters::ParameterTable::*buffer)() const, double bound) {
  const parameters::ParameterTable &here = part.table(), &there = whole.table();
  for (const parameters::Segment& segment : here.segments()) {
    const Tensor &own = (here.*buffer)(), &all = (there.*buffer)();
    if (segment.offset + segment.size > own.numel()) continue;  // it is not for those
    Tensor expected = there.view(all, there.segment(segment.name));
    if (segment.slice) expected = segment.slice->take(expected);
    EXPECT_LE((here.view(own, segment) - expected).abs().max().item<double>(), bound)
        << segment.name;
  }
}

void expect_same(const Trainer& part, const Trainer& whole) {
  using Table = parameters::ParameterTable;
  expect_part_of(part, whole, &Table::master, 1e-8);
  expect_part_of(part, whole, &Table::average, 1e-8);
  expect_part_of(part, whole, &Table::first_moment, 1e-8);
}

void expect_same_run(const Config& config) {
  Trainer whole(config, kDouble, source(), lone_worker());
  const auto expected = losses(whole, kSteps);
  EXPECT_LT(expected.back(), expected.front()) << "it learns";
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer part(config, kDouble, source(), grid);
    EXPECT_LE(test::largest_difference(losses(part, kSteps), expected), 1e-9);
    expect_same(part, whole);
  }
}

TEST(MuonOfWorkers, LearnsAsOnOneWorkerHoweverTheModelIsDivided) {
  expect_same_run(muon_config());
  Config dense = muon_config();
  dense.experts = {};
  expect_same_run(dense);
}

// Grouped queries make matrices of unequal heights in one tensor; swiglu two above another.
TEST(MuonOfWorkers, LearnsAsOnOneWorkerInAModernDecoder) {
  Config config = muon_config();
  config.model.heads = 8;
  config.model.heads_kv = 4;
  config.model.head_width = 4;
  config.model.activation = config::Activation::kSwiglu;
  config.model.norm = config::NormKind::kRms;
  config.model.biases = config::Biases::kNone;
  config.model.tied = false;
  expect_same_run(config);
}

TEST(MuonOfWorkers, MomentumGoesOnFromACheckpointThatWasDividedOtherwise) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder =
      comm::gather_texts(everyone(), own.path().string(), {"folder"}).front();
  Config config = muon_config();
  config.training.freeze = {"block.0.attention.*", "layer.*.shared.*"};
  Trainer straight(config, kDouble, source(), lone_worker());
  const auto expected = losses(straight, kSteps);
  for (const WorkerGrid& before : test::divisions()) {
    Trainer first(config, kDouble, source(), before);
    losses(first, kSaved);
    const auto saved =
        save_training(folder / std::to_string(before.num_shards()),
                      {first.config(), first.model(), first.table(), first.state()}, before);
    for (const WorkerGrid& after : test::divisions()) {
      SCOPED_TRACE(test::name_of(before) + ", then " + test::name_of(after));
      Trainer second(config, kDouble, source(), after);
      second.resume(checkpoint::Checkpoint(saved));
      EXPECT_LE(test::largest_difference(losses(second, kSteps - kSaved),
                                         {expected.begin() + kSaved, expected.end()}),
                1e-9);
      expect_same(second, straight);
    }
    everyone().barrier({"done"});
  }
}

// The same number of workers, divided alike: to the bit.
TEST(MuonOfWorkers, AResumedRunIsBitIdentical) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder =
      comm::gather_texts(everyone(), own.path().string(), {"folder"}).front();
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer straight(muon_config(), {}, source(), grid), first(muon_config(), {}, source(), grid),
        second(muon_config(), {}, source(), grid);
    const auto expected = losses(straight, kSteps);
    losses(first, kSaved);
    second.resume(checkpoint::Checkpoint(
        save_training(folder / std::to_string(grid.num_shards()),
                      {first.config(), first.model(), first.table(), first.state()}, grid)));
    const auto rest = losses(second, kSteps - kSaved);
    EXPECT_EQ(rest, std::vector<double>(expected.begin() + kSaved, expected.end()));
    EXPECT_TRUE(at::equal(second.table().master(), straight.table().master()));
    EXPECT_TRUE(at::equal(second.table().average(), straight.table().average()));
    EXPECT_TRUE(at::equal(second.table().first_moment(), straight.table().first_moment()));
    everyone().barrier({"done"});
  }
}

// Matrices that all workers hold stay the same on all, to the bit.
TEST(MuonOfWorkers, WorkersStayAlike) {
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer part(muon_config(), {}, source(), grid);
    losses(part, kSteps);
    const parameters::ParameterTable& table = part.table();
    std::vector<comm::NamedTensor> shared, parts;
    for (const parameters::Segment& segment : table.segments()) {
      if (segment.owner == parameters::Owner::kExpert) continue;
      (segment.slice ? parts : shared)
          .push_back({segment.name, table.view(table.master(), segment)});
    }
    EXPECT_NO_THROW(comm::check_equal(grid.everyone(), shared, {"shared"}));
    EXPECT_NO_THROW(comm::check_equal(grid.replicas(), parts, {"parts"}));
  }
}

TEST(FreezeOfWorkers, LearnsAsOnOneWorkerHoweverTheModelIsDivided) {
  const std::pair<config::Algorithm, std::vector<std::string>> cases[] = {
      {config::Algorithm::kAdam, {"block.*"}},
      {config::Algorithm::kAdam, {"position_embedding", "*.down.*"}},
      {config::Algorithm::kMuon, {"block.1.*"}},
      {config::Algorithm::kMuon, {"layer.*.expert.*"}}};
  for (const auto& [algorithm, patterns] : cases) {
    SCOPED_TRACE(patterns.front());
    Config config = muon_config();
    config.optimizer.algorithm = algorithm;
    config.training.freeze = patterns;
    expect_same_run(config);
  }
}

}  // namespace
}  // namespace ballast::training
