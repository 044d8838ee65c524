// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp. Training with Adam's state divided among workers,
// against the same workers with all of it each.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <utility>

#include "ballast/comm/texts.h"
#include "ballast/training/divided_state.h"
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
using parameters::ParameterTable;
using test::everyone;
using test::losses;

constexpr int64_t kSteps = 20, kSaved = 3;

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, 23); }

model::ComputePlace in_double() {
  model::ComputePlace place = test::kDouble;
  place.device = test::device();
  return place;
}

Config dense_config() {
  Config config;
  config.model = {
      .vocabulary = 23, .width = 16, .layers = 2, .heads = 4, .hidden = 24, .context = 8};
  config.training.batch = 8;
  config.training.steps = kSteps;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 3;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.clip_norm = 0.5;
  config.optimizer.average = 0.8;
  return config;
}

Config expert_config(const std::string& router) {
  Config config = dense_config();
  config.experts.layers = 1;
  config.experts.count = 8;
  config.experts.sublayers = 1;
  config.experts.groups = 8;
  if (router == "base") return config;
  config.experts.router = router;
  config.experts.placement = config::Placement::kReplace;
  return config;
}

Config divided(Config config) {
  config.training.shard_optimizer = true;
  return config;
}

// Bytes of state, as far as buffers have memory of their own.
int64_t state_of(const ParameterTable& table) {
  int64_t elements = 0;
  for (const Tensor& flat :
       {table.first_moment(), table.second_moment(), table.average(), table.master()})
    elements += flat.defined() && !flat.is_same(table.working()) ? flat.numel() : 0;
  return elements;
}

// Everything of both that is in one place in both.
void expect_same_state(const ParameterTable& part, const ParameterTable& whole, double bound) {
  const auto difference = [](const Tensor& a, const Tensor& b) {
    return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
  };
  EXPECT_LE(difference(part.working(), whole.working()), bound);
  const auto compare = [&](const Tensor& own, const Tensor& all, int64_t end) {
    for (const parameters::FlatRange& range : part.held().within({0, end}))
      EXPECT_LE(difference(part.part(own, range), range.of(all)), bound);
  };
  compare(part.first_moment(), whole.first_moment(), whole.first_moment().numel());
  compare(part.second_moment(), whole.second_moment(), whole.second_moment().numel());
  if (whole.average().defined()) compare(part.average(), whole.average(), whole.average().numel());
}

struct Case {
  std::string name;
  Config config;
};

std::vector<Case> cases() {
  std::vector<Case> all = {{"dense", dense_config()},
                           {"base", expert_config("base")},
                           {"switch", expert_config("switch")},
                           {"muon", expert_config("base")},
                           {"frozen", expert_config("base")}};
  all[1].config.experts.shared = 0.5;
  all[3].config.optimizer.algorithm = config::Algorithm::kMuon;
  all[4].config.training.freeze = {"position_embedding", "block.1.*"};
  return all;
}

TEST(DividedState, LearnsAsWithWholeStateHoweverTheModelIsDivided) {
  for (const auto& [name, config] : cases()) {
    for (const WorkerGrid& grid : test::divisions()) {
      if (grid.num_shards() > 1 && name != "base") continue;  // to save time
      SCOPED_TRACE(name + ", " + test::name_of(grid));
      Trainer whole(config, in_double(), source(), grid),
          part(divided(config), in_double(), source(), grid);
      const auto expected = losses(whole, kSteps);
      EXPECT_LT(expected.back(), expected.front() - 0.1) << "it learns";
      EXPECT_LE(test::largest_difference(losses(part, kSteps), expected), 1e-9);
      expect_same_state(part.table(), whole.table(), 1e-8);
      const bool alone = everyone().size() == 1;
      EXPECT_EQ(part.table().held().is_whole(), alone);
      if (!alone) {
        EXPECT_LT(state_of(part.table()), state_of(whole.table()));
      }
    }
  }
}

// MPI adds up in the same order for all_reduce and reduce_scatter, and without clipping nothing
// else differs.
TEST(DividedState, WithoutClippingItIsTheSameToTheBit) {
  Config config = expert_config("base");
  config.optimizer.clip_norm = 0;
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer whole(config, {}, source(), grid), part(divided(config), {}, source(), grid);
    EXPECT_EQ(losses(part, 8), losses(whole, 8));
    expect_same_state(part.table(), whole.table(), 0);
  }
}

// Several chunks, and parts of several groups in each.
TEST(DividedState, ChunksOfAnySizeGiveTheSameUpdates) {
  comm::Communicator& workers = everyone();
  Config config = dense_config();
  config.optimizer.clip_norm = 0;
  const auto trained = [&](bool divides, int64_t chunk_bytes, const auto& look) {
    ParameterTable table;
    const model::LanguageModel model(config, table, workers);
    table.allocate(
        {.working = at::kDouble,
         .master = at::kDouble,
         .average = true,
         .divisions = divides ? state_divisions(workers) : std::vector<parameters::StateDivision>(),
         .chunk_bytes = chunk_bytes});
    table.initialize(1);
    GradientReducer reducer(table, config.model.layers, workers);
    Optimizer optimizer(table, config.optimizer);
    const Tensor scale = at::ones({}, at::kDouble);
    for (int64_t update = 1; update <= 3; ++update) {
      reducer.begin();
      table.gradient().copy_(at::arange(table.gradient().numel(), at::kDouble)
                                 .add_(31 * update + 7 * workers.rank())
                                 .remainder_(13)
                                 .sub_(6));
      for (int64_t block = config.model.layers; block-- > 0;) reducer.reached(block);
      reducer.finish();
      optimizer.update(optimizer.numbers(update, 1e-2), scale);
      gather_weights(table, workers);
      EXPECT_EQ(table.gradient().abs().max().item<double>(), 0);
    }
    look(table);
  };
  trained(false, 0, [&](const ParameterTable& whole) {
    for (const int64_t bytes : {1, 3000, 20000, 8 << 20}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes");
      trained(true, bytes, [&](const ParameterTable& part) {
        if (workers.size() > 1 && bytes < 20000) {
          EXPECT_GE(part.held().chunks().size(), 4U);
        }
        expect_same_state(part, whole, 0);
      });
    }
  });
}

TEST(DividedState, ClipsByTheNormOfAll) {
  Config config = expert_config("base");
  config.optimizer.clip_over = config::ClipOver::kAll;
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer whole(config, in_double(), source(), grid),
        part(divided(config), in_double(), source(), grid);
    for (int64_t step = 0; step < 2; ++step) {
      const StepStats expected = whole.step(), got = part.step();
      EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-12);
      EXPECT_NEAR(got.expert_gradient_norm, expected.expert_gradient_norm, 1e-12);
      EXPECT_GT(got.gradient_norm, config.optimizer.clip_norm) << "it is clipped";
    }
  }
}

// A folder that all workers see.
std::filesystem::path shared_folder(const test::TemporaryFolder& own) {
  return comm::gather_texts(everyone(), own.path().string(), {"folder"}).front();
}

checkpoint::Checkpoint saved_in(const std::filesystem::path& folder, const Trainer& trainer) {
  return checkpoint::Checkpoint(
      save_training(folder, {trainer.config(), trainer.model(), trainer.table(), trainer.state()},
                    trainer.grid()));
}

// The tensors of two checkpoints are the same to the bit, whatever files they are in.
void expect_same_tensors(const checkpoint::Checkpoint& one, const checkpoint::Checkpoint& other) {
  ASSERT_EQ(one.manifest().tensors.size(), other.manifest().tensors.size());
  for (const checkpoint::TensorEntry& entry : other.manifest().tensors) {
    const auto a = one.tensor(entry.name), b = other.tensor(entry.name);
    EXPECT_EQ(a.shape, b.shape) << entry.name;
    EXPECT_TRUE(std::ranges::equal(a.data, b.data)) << entry.name;
  }
}

TEST(DividedState, CheckpointsAreThoseOfWholeStateAndEachGoesOnFromTheOthers) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  Config config = expert_config("base");
  config.optimizer.algorithm = config::Algorithm::kMuon;
  config.optimizer.clip_norm = 0;
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer whole(config, {}, source(), grid), part(divided(config), {}, source(), grid);
    losses(whole, kSaved);
    losses(part, kSaved);
    const auto name = std::to_string(grid.num_shards());
    const auto of_whole = saved_in(folder / "whole" / name, whole),
               of_part = saved_in(folder / "part" / name, part);
    expect_same_tensors(of_part, of_whole);
    const auto expected = losses(whole, 3);
    EXPECT_EQ(losses(part, 3), expected);
    for (const Config& after : {config, divided(config)}) {
      for (const checkpoint::Checkpoint* before : {&of_whole, &of_part}) {
        Trainer second(after, {}, source(), grid);
        second.resume(*before);
        EXPECT_EQ(losses(second, 3), expected);
        expect_same_state(second.table(), whole.table(), 0);
      }
    }
    everyone().barrier({"done"});
  }
}

// Saved by all of them, loaded by one, and the reverse.
TEST(DividedState, AnyNumberOfWorkersGoesOn) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  const Config config = divided(expert_config("base"));
  Trainer alone(config, in_double(), source(), test::lone_worker());
  losses(alone, kSaved);
  Trainer first(config, in_double(), source(), everyone());
  losses(first, kSaved);
  const auto of_many = saved_in(folder / "many", first);
  if (everyone().rank() == 0) saved_in(folder / "one", alone);
  everyone().barrier({"saved"});
  const auto expected = losses(alone, 3);
  Trainer one(config, in_double(), source(), test::lone_worker()),
      many(config, in_double(), source(), everyone());
  one.resume(of_many);
  many.resume(checkpoint::Checkpoint(folder / "one" / of_many.path().filename()));
  EXPECT_LE(test::largest_difference(losses(one, 3), expected), 1e-9);
  EXPECT_LE(test::largest_difference(losses(many, 3), expected), 1e-9);
  everyone().barrier({"done"});
}

// Master weights of their own are part of the state. On a CPU such a model cannot take a step.
TEST(DividedState, MasterWeightsAreDividedToo) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  const model::ComputePlace mixed{.working = at::kBFloat16, .master = at::kFloat};
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    const Config config = expert_config("base");
    Trainer whole(config, mixed, source(), grid), part(divided(config), mixed, source(), grid);
    EXPECT_TRUE(at::equal(part.table().working(), whole.table().working()));
    const auto name = std::to_string(grid.num_shards());
    const auto of_whole = saved_in(folder / "whole" / name, whole),
               of_part = saved_in(folder / "part" / name, part);
    expect_same_tensors(of_part, of_whole);
    if (everyone().size() > 1) {
      EXPECT_LT(part.table().master().numel(), whole.table().master().numel());
    }
    Config other = divided(config);
    other.training.seed = 2;
    Trainer second(other, mixed, source(), grid);
    second.resume(of_whole);
    EXPECT_TRUE(at::equal(second.table().working(), whole.table().working()));
    expect_same_tensors(saved_in(folder / "second" / name, second), of_whole);
    Trainer third(other, mixed, source(), grid);
    third.initialize_from(of_part);
    EXPECT_TRUE(at::equal(third.table().working(), whole.table().working()));
    EXPECT_TRUE(at::equal(third.table().master(), part.table().master()));
    EXPECT_TRUE(at::equal(third.table().average(), part.table().average()));
    everyone().barrier({"done"});
  }
}

}  // namespace
}  // namespace ballast::training
