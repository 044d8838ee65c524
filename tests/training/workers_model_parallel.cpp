// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp. Models are divided among them in every way that
// their number allows, and each compares with a whole model of its own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/training/trainer.h"
#include "tests/comm/divisions.h"
#include "tests/comm/workers.h"
#include "tests/support/decoder_variants.h"
#include "tests/support/error_of.h"
#include "tests/support/lone_worker.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"
#include "tests/training/router_variants.h"

namespace ballast::training {
namespace {

using at::Tensor;
using comm::WorkerGrid;
using config::Config;
using test::kDouble;
using test::lone_worker;

// A wrong gradient of a step is in the next loss; the moments of Adam need a few.
constexpr int64_t kSteps = 6, kSaved = 2;
constexpr int64_t kVocabulary = 23;  // which neither 2 nor 4 divide

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, kVocabulary); }

Config dense_config() {
  Config config;
  config.model = {
      .vocabulary = kVocabulary, .width = 16, .layers = 2, .heads = 4, .hidden = 24, .context = 12};
  config.training.batch = 8;
  config.training.steps = kSteps;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.clip_norm = 0.5;
  return config;
}

Config config_with(const std::string& router, const std::string& placement = "spread") {
  Config config = dense_config();
  config.experts.layers = 1;
  config.experts.count = 8;
  config.experts.sublayers = 1;
  config.experts.groups = 8;
  config.experts.router = router;
  config.experts.placement = config::choice_of<config::Placement>(placement);
  return config;
}

std::vector<double> losses(Trainer& trainer, int64_t steps = kSteps) {
  return test::losses(trainer, steps);
}

// What this worker holds of each parameter is what the whole has there.
void expect_part_of(const parameters::ParameterTable& part, const parameters::ParameterTable& whole,
                    double bound) {
  for (const parameters::Segment& segment : part.segments()) {
    const parameters::Segment& there = whole.segment(segment.name);
    Tensor expected = whole.view(whole.master(), there);
    if (segment.slice) {
      ASSERT_EQ(segment.slice->full_shape, there.shape) << segment.name;
      expected = segment.slice->take(expected);
    }
    const Tensor difference = part.view(part.master(), segment) - expected;
    EXPECT_LE(difference.abs().max().item<double>(), bound) << segment.name;
  }
}

// Where the tests' tensors are: the CPU, or a GPU that the workers share.
void expect_same_run(const Config& config, int64_t steps = kSteps) {
  model::ComputePlace place = kDouble;
  place.device = test::device();
  Trainer whole(config, place, source(), lone_worker());
  const auto expected = losses(whole, steps);
  EXPECT_LT(expected.back(), expected.front()) << "it learns";
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer part(config, place, source(), grid);
    EXPECT_LE(test::largest_difference(losses(part, steps), expected), 1e-9);
    expect_part_of(part.table(), whole.table(), 1e-8);
  }
}

TEST(ModelParallel, ADenseModelLearnsAsOnOneWorker) { expect_same_run(dense_config()); }

TEST(ModelParallel, ABaseModelLearnsAsOnOneWorker) { expect_same_run(config_with("base")); }

TEST(ModelParallel, AModelOfGatesLearnsAsOnOneWorker) {
  expect_same_run(config_with("switch", "replace"));
  expect_same_run(config_with("sparsely_gated"));
}

TEST(ModelParallel, LearnsAsOnOneWorkerInEveryFrame) {
  for (const auto& [name, change] : test::router_variants()) {
    SCOPED_TRACE(name);
    Config config = config_with("base", "replace");
    change(config.experts);
    expect_same_run(config, /*steps=*/3);
  }
}

TEST(ModelParallel, DecodersOfOtherPartsLearnAsOnOneWorker) {
  for (const auto& [name, change] : test::decoder_variants()) {
    SCOPED_TRACE(name);
    Config config = dense_config();
    change(config);
    config::check_config(config);
    expect_same_run(config, /*steps=*/3);
  }
}

TEST(ModelParallel, LearnsAsOnOneWorkerInMicroSteps) {
  Config config = config_with("base");
  config.training.micro_steps = 2;
  config.training.batch = 16;
  expect_same_run(config);
}

// Sums over the shards are made once more on the way back, by all in the same order.
TEST(ModelParallel, LearnsAsOnOneWorkerWithBlocksComputedAgain) {
  for (Config config : {dense_config(), config_with("base")}) {
    config.training.recompute = config::Recompute::kBlocks;
    expect_same_run(config);
  }
}

// Parts of each matrix on each worker, and of nothing twice.
TEST(ModelParallel, DividesTheMatricesOfBlocksAndTheVocabulary) {
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    parameters::ParameterTable table;
    const model::LanguageModel model(dense_config(), table, grid);
    table.allocate({});
    int64_t parts = 0;
    for (const parameters::Segment& segment : table.segments()) {
      EXPECT_EQ(segment.owner == parameters::Owner::kShard, segment.slice.has_value())
          << segment.name;
      const bool matrix = segment.shape.size() == 2 && segment.name != "position_embedding";
      if (matrix) {
        EXPECT_EQ(segment.slice.has_value(), grid.num_shards() > 1) << segment.name;
      }
      parts += segment.owner == parameters::Owner::kShard ? segment.size : 0;
    }
    const int64_t d = 16, f = 24;
    const int64_t whole = kVocabulary * d + 2 * (4 * d * d + 3 * d + 2 * d * f + f);
    const Tensor sum = at::full({1}, parts, at::kLong);
    grid.shards().all_reduce(sum, comm::Reduction::kSum, {"test"});
    EXPECT_EQ(sum.item<int64_t>(), grid.num_shards() > 1 ? whole : 0);
  }
}

TEST(ModelParallel, InitialWeightsAreThoseOfTheWholeModelToTheBit) {
  const Trainer whole(config_with("base"), {}, source(), lone_worker());
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    const Trainer part(config_with("base"), {}, source(), grid);
    expect_part_of(part.table(), whole.table(), 0);
  }
}

TEST(ModelParallel, ClipsAlikeByTheNormOfAllParts) {
  for (const config::ClipOver over : {config::ClipOver::kShared, config::ClipOver::kAll}) {
    Config config = config_with("base");
    config.optimizer.clip_over = over;
    for (const WorkerGrid& grid : test::divisions()) {
      SCOPED_TRACE(test::name_of(grid));
      Trainer whole(config, kDouble, source(), lone_worker());
      Trainer part(config, kDouble, source(), grid);
      for (int64_t i = 0; i < 3; ++i) {
        const StepStats expected = whole.step(), got = part.step();
        EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-10);
        EXPECT_NEAR(got.expert_gradient_norm, expected.expert_gradient_norm, 1e-10);
        EXPECT_DOUBLE_EQ(got.layers.at(0).greedy_share, expected.layers.at(0).greedy_share);
        EXPECT_EQ(got.tokens, expected.tokens);
        const comm::Fact norm{"norm", fmt::format("{}", got.gradient_norm)};
        comm::check_agreement(test::everyone(), {&norm, 1}, {"test"});  // to the bit
      }
    }
  }
}

// A gradient that is not finite in one worker's part alone stops the step on all.
TEST(ModelParallel, SkipsAStepTogetherWhenOnePartsGradientIsNotFinite) {
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer part(dense_config(), kDouble, source(), grid);
    losses(part, 2);
    if (grid.shard() == grid.num_shards() - 1) {
      // Activations of 1e200 that a projection of 0 hides: its gradient is 1e200 squared.
      const auto fill = [&](const char* name, double value) {
        const parameters::ParameterTable& table = part.table();
        table.view(table.working(), table.segment(std::string("block.1.feed_forward.") + name))
            .fill_(value);
      };
      fill("up.bias", 1e200);
      fill("down.weight", 0);
    }
    const Tensor before = part.table().master().clone();
    const StepStats stats = part.step();
    EXPECT_TRUE(std::isfinite(stats.loss));
    EXPECT_NE(stats.skipped, "");
    EXPECT_EQ(part.state().updates, 2);
    EXPECT_TRUE(at::equal(part.table().master(), before));
  }
}

// Buckets of one byte: every block is sent as soon as the backward pass has left it.
TEST(ModelParallel, ReducesGradientsWhileTheBackwardPassGoesOn) {
  const Config config = config_with("base");
  const auto add_gradients = [&](const WorkerGrid& grid, int64_t bytes,
                                 parameters::ParameterTable& table) {
    const model::LanguageModel model(config, table, grid);
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(1);
    GradientReducer reducer(table, config.model.layers, grid, bytes);
    const int64_t rows = 8 / grid.num_replicas();
    const Tensor all = (at::arange(8 * 12) * 7).remainder(kVocabulary).view({8, 12});
    const Tensor tokens = all.narrow(0, grid.replica() * rows, rows);
    const experts::Routing routing{.mode = experts::RoutingMode::kBalanced,
                                   .training = experts::TrainingRoute{.groups = 8}};
    const Tensor hidden = model.forward(tokens, routing, &reducer);
    const auto result = model.losses_and_gradient(hidden, tokens.reshape({-1}), 1.0 / 96);
    torch::autograd::backward({hidden}, {result.gradient});
    reducer.finish();
    table.master().copy_(table.gradient());  // to compare them as weights are
  };
  parameters::ParameterTable whole;
  add_gradients(lone_worker(), GradientReducer::kBucketBytes, whole);
  for (const WorkerGrid& grid : test::divisions()) {
    for (const int64_t bytes : {int64_t{1}, int64_t{3000}, GradientReducer::kBucketBytes}) {
      SCOPED_TRACE(fmt::format("{}, {} bytes", test::name_of(grid), bytes));
      parameters::ParameterTable part;
      add_gradients(grid, bytes, part);
      expect_part_of(part, whole, 1e-12);
    }
  }
}

// A folder that all workers see.
std::filesystem::path shared_folder(const test::TemporaryFolder& own) {
  return comm::gather_texts(test::everyone(), own.path().string(), {"folder"}).front();
}

TrainingParts parts_of(const Trainer& trainer) {
  return {trainer.config(), trainer.model(), trainer.table(), trainer.state()};
}

using TensorFacts = std::tuple<std::string, std::vector<int64_t>, checkpoint::Dtype>;
std::vector<TensorFacts> tensors_of(const checkpoint::Checkpoint& checkpoint) {
  std::vector<TensorFacts> facts;
  for (const checkpoint::TensorEntry& entry : checkpoint.manifest().tensors)
    facts.emplace_back(entry.name, entry.shape, entry.dtype);
  std::ranges::sort(facts);
  return facts;
}

TEST(ModelParallel, CheckpointsHoldTheSameTensorsHoweverTheModelIsDivided) {
  const test::TemporaryFolder own, alone;
  const std::filesystem::path folder = shared_folder(own);
  Trainer whole(config_with("base"), kDouble, source(), lone_worker());
  losses(whole, 3);
  const checkpoint::Checkpoint expected(
      save_training(alone.path(), parts_of(whole), lone_worker()));
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer part(config_with("base"), kDouble, source(), grid);
    losses(part, 3);
    const auto saved =
        save_training(folder / std::to_string(grid.num_shards()), parts_of(part), grid);
    checkpoint::Checkpoint got(saved);
    got.verify();
    EXPECT_EQ(tensors_of(got), tensors_of(expected));
    parameters::ParameterTable table;
    const model::LanguageModel model(config_with("base"), table, lone_worker());
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    TrainingState state(whole.config().training);
    load_training(got, model, table, state);
    expect_part_of(table, whole.table(), 1e-10);
    EXPECT_LE((table.first_moment() - whole.table().first_moment()).abs().max().item<double>(),
              1e-10);
    EXPECT_LE((table.second_moment() - whole.table().second_moment()).abs().max().item<double>(),
              1e-10);
  }
  test::everyone().barrier({"done"});
}

// No file holds more than its share and one tensor: no worker ever has the whole model.
TEST(ModelParallel, ShardsWriteTheWholeTensorsInTurn) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  for (const WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    const Trainer part(dense_config(), {}, source(), grid);
    const checkpoint::Checkpoint saved(
        save_training(folder / std::to_string(grid.num_shards()), parts_of(part), grid));
    std::map<std::string, int64_t> elements;
    int64_t all = 0, largest = 0;
    for (const checkpoint::TensorEntry& entry : saved.manifest().tensors) {
      if (!entry.file.starts_with("model")) continue;
      int64_t size = 1;
      for (const int64_t extent : entry.shape) size *= extent;
      elements[entry.file] += size;
      all += size;
      largest = std::max(largest, size);
    }
    EXPECT_EQ(std::ssize(elements), grid.num_shards());
    for (const auto& [file, size] : elements)
      EXPECT_LE(size, all / grid.num_shards() + largest) << file;
  }
  test::everyone().barrier({"done"});
}

TEST(ModelParallel, GoesOnFromACheckpointThatWasDividedOtherwise) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  for (const Config& config : {dense_config(), config_with("base"), config_with("sparsely_gated"),
                               config_with("switch", "replace")}) {
    Trainer straight(config, kDouble, source(), lone_worker());
    const auto expected = losses(straight);
    for (const WorkerGrid& before : test::divisions()) {
      Trainer first(config, kDouble, source(), before);
      losses(first, kSaved);
      const auto saved =
          save_training(folder / std::to_string(before.num_shards()), parts_of(first), before);
      for (const WorkerGrid& after : test::divisions()) {
        SCOPED_TRACE(test::name_of(before) + ", then " + test::name_of(after));
        Trainer second(config, kDouble, source(), after);
        second.resume(checkpoint::Checkpoint(saved));
        EXPECT_LE(test::largest_difference(losses(second, kSteps - kSaved),
                                           {expected.begin() + kSaved, expected.end()}),
                  1e-9);
      }
      test::everyone().barrier({"done"});
    }
  }
}

TEST(ModelParallel, AResumedRunOfNormedWidthsIsTheSameToTheBit) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  Config config = dense_config();
  config.model.query_key_norm = config::QueryKeyNorm::kWidth;
  for (const WorkerGrid& grid : test::divisions()) {
    Trainer straight(config, kDouble, source(), grid);
    losses(straight, 3);
    const auto saved =
        save_training(folder / std::to_string(grid.num_shards()), parts_of(straight), grid);
    Trainer second(config, kDouble, source(), grid);
    second.resume(checkpoint::Checkpoint(saved));
    EXPECT_EQ(losses(second, 3), losses(straight, 3));
    EXPECT_TRUE(at::equal(second.table().master(), straight.table().master()));
    test::everyone().barrier({"done"});
  }
}

TEST(ModelParallel, StartsFromWeightsThatWereDividedOtherwise) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  Config other = dense_config();
  other.training.seed = 7;
  Trainer alone(other, kDouble, source(), lone_worker());
  if (test::everyone().rank() == 0) save_training(folder, parts_of(alone), lone_worker());
  test::everyone().barrier({"saved"});
  for (const WorkerGrid& grid : test::divisions()) {
    Trainer part(dense_config(), kDouble, source(), grid);
    part.initialize_from(checkpoint::Checkpoint(folder / "step_00000000"));
    expect_part_of(part.table(), alone.table(), 0);
  }
  test::everyone().barrier({"done"});
}

TEST(ModelParallel, AWeightOfAnotherShapeIsRefusedByItsWholeShape) {
  const test::TemporaryFolder own;
  Trainer alone(dense_config(), kDouble, source(), lone_worker());
  const checkpoint::Checkpoint saved(save_training(own.path(), parts_of(alone), lone_worker()));
  Config wider = dense_config();
  wider.model.hidden = 48;
  for (const WorkerGrid& grid : test::divisions()) {
    Trainer part(wider, kDouble, source(), grid);
    const std::string error = test::error_of([&] { part.initialize_from(saved); });
    EXPECT_NE(error.find("F64 [24, 16]"), std::string::npos) << error;
    EXPECT_NE(error.find("F64 [48, 16]"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ballast::training
