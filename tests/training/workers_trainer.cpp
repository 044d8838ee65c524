// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp. Each compares with a trainer of its own that is
// alone and computes the whole run.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <memory>

#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/training/trainer.h"
#include "tests/comm/divisions.h"
#include "tests/comm/workers.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/error_of.h"
#include "tests/support/lone_worker.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"
#include "tests/training/router_variants.h"

namespace ballast::training {
namespace {

using test::everyone;
using test::kDouble;
using test::largest_difference;
using test::lone_worker;

constexpr int64_t kSteps = 8, kSaved = 3;

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, 20); }

config::Config config_of(int64_t micro_steps = 1) {
  config::Config config;
  config.model = {.vocabulary = 20, .width = 16, .layers = 2, .heads = 2, .context = 12};
  config.experts.layers = 2;
  config.experts.count = 8;
  config.experts.sublayers = 1;
  config.experts.groups = 8;
  config.training.batch = 8 * micro_steps;
  config.training.micro_steps = micro_steps;
  config.training.steps = kSteps;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.clip_norm = 0.5;
  return config;
}

std::vector<double> losses(Trainer& trainer, int64_t steps = kSteps) {
  return test::losses(trainer, steps);
}

// Parameters that both have are equal to rounding.
void expect_same_weights(const Trainer& part, const Trainer& whole, double bound) {
  for (const parameters::Segment& segment : part.table().segments()) {
    const at::Tensor difference =
        part.table().view(part.table().master(), segment) -
        whole.table().view(whole.table().master(), whole.table().segment(segment.name));
    EXPECT_LE(difference.abs().max().item<double>(), bound) << segment.name;
  }
}

TEST(TrainerOfWorkers, ComputesWhatOneWorkerComputes) {
  for (const int64_t micro_steps : {1, 2}) {
    Trainer whole(config_of(micro_steps), kDouble, source(), test::lone_worker());
    Trainer part(config_of(micro_steps), kDouble, source(), everyone());
    const auto expected = losses(whole), got = losses(part);
    EXPECT_LT(expected.back(), expected.front() - 0.1) << "it learns";
    EXPECT_LE(test::largest_difference(got, expected), 1e-9);
    expect_same_weights(part, whole, 1e-8);
  }
}

TEST(TrainerOfWorkers, ComputeWhatOneWorkerComputesInEveryFrame) {
  for (const auto& [name, change] : test::router_variants()) {
    SCOPED_TRACE(name);
    config::Config config = config_of();
    change(config.experts);
    Trainer whole(config, kDouble, source(), test::lone_worker()),
        part(config, kDouble, source(), everyone());
    EXPECT_LE(test::largest_difference(losses(part, 3), losses(whole, 3)), 1e-9);
    expect_same_weights(part, whole, 1e-8);
  }
}

TEST(TrainerOfWorkers, ClipsByTheNormOfAllParametersAlike) {
  config::Config config = config_of();
  config.optimizer.clip_over = config::ClipOver::kAll;
  Trainer whole(config, kDouble, source(), test::lone_worker()),
      part(config, kDouble, source(), everyone());
  for (int64_t i = 0; i < 3; ++i) {
    const StepStats expected = whole.step(), got = part.step();
    EXPECT_NEAR(got.loss, expected.loss, 1e-10);
    EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-10);
    EXPECT_NEAR(got.expert_gradient_norm, expected.expert_gradient_norm, 1e-10);
    ASSERT_EQ(got.layers.size(), 2U);
    EXPECT_DOUBLE_EQ(got.layers[1].greedy_share, expected.layers[1].greedy_share);
  }
}

// In fp32 a near-tie may be decided otherwise: with the same assignments what is left is rounding.
// The bound is 2^-20, four units in the last place of a token's loss of about 3: the mean over the
// tokens rounds less (3e-8 was seen), and steps of Adam must not make more of it.
TEST(TrainerOfWorkers, ComputesTheSameInFp32WithTheSameAssignments) {
  test::MemoryTape tape;
  Trainer whole(config_of(), {}, source(), test::lone_worker()),
      part(config_of(), {}, source(), everyone());
  whole.use_tape(&tape);
  const auto expected = losses(whole);
  const int64_t before = tape.replayed;
  part.use_tape(&tape);
  const auto got = losses(part);
  EXPECT_EQ(tape.replayed - before, 2 * kSteps);
  EXPECT_LE(test::largest_difference(got, expected), 0x1p-20);
}

TEST(TrainerOfWorkers, TellWhatTimeTheySpendOnCommunication) {
  config::Config each_step = config_of();
  each_step.model.heads = 4;
  each_step.training.log_every = 1;
  config::Config no_step = each_step;
  no_step.training.log_every = 1000;
  for (const comm::WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    Trainer watched(each_step, kDouble, source(), grid), plain(no_step, kDouble, source(), grid);
    for (int64_t step = 0; step < 2; ++step) {
      const StepStats stats = watched.step();
      EXPECT_EQ(plain.step().loss, stats.loss) << "to watch changes nothing";
      double sum = 0, communication = -1;
      for (const step::PartSeconds& part : stats.parts) {
        sum += part.seconds;
        if (part.part == step::StepPart::kCommunication) communication = part.seconds;
      }
      EXPECT_LE(sum, stats.seconds);
      EXPECT_EQ(communication > 0, everyone().size() > 1);
    }
    EXPECT_TRUE(at::equal(watched.table().master(), plain.table().master()));
  }
}

// Buckets of one byte: every block is sent as soon as the backward pass has left it.
TEST(TrainerOfWorkers, ReduceGradientsWhileTheBackwardPassGoesOn) {
  const config::Config config = config_of();
  const auto gradients = [&](comm::Communicator& workers, int64_t bucket_bytes) {
    parameters::ParameterTable table;
    const model::LanguageModel model(config, table, workers);
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(1);
    GradientReducer reducer(table, config.model.layers, workers, bucket_bytes);
    const int64_t rows = 8 / workers.size();
    const at::Tensor all = (at::arange(8 * 12) * 7).remainder(20).view({8, 12});
    const at::Tensor tokens = all.narrow(0, workers.rank() * rows, rows);
    const at::Tensor hidden = model.forward(
        tokens,
        {.mode = experts::RoutingMode::kBalanced, .training = experts::TrainingRoute{.groups = 8}},
        &reducer);
    const auto result = model.losses_and_gradient(hidden, tokens.reshape({-1}), 1.0 / 96);
    torch::autograd::backward({hidden}, {result.gradient});
    reducer.finish();
    return table.range(parameters::Owner::kShard, parameters::Owner::kRouter)
        .of(table.gradient())
        .clone();
  };
  const at::Tensor expected = gradients(test::lone_worker(), GradientReducer::kBucketBytes);
  for (const int64_t bytes : {int64_t{1}, int64_t{10000}, GradientReducer::kBucketBytes}) {
    const at::Tensor difference = gradients(everyone(), bytes) - expected;
    EXPECT_LE(difference.abs().max().item<double>(), 1e-12) << bytes << " bytes";
  }
}

// A folder that all workers see.
std::filesystem::path shared_folder(const test::TemporaryFolder& own) {
  return comm::gather_texts(everyone(), own.path().string(), {"folder"}).front();
}

// Saved by all of them, loaded by one, and the reverse.
TEST(TrainerOfWorkers, GoOnFromEachOthersCheckpoints) {
  const test::TemporaryFolder own;
  const std::filesystem::path folder = shared_folder(own);
  Trainer straight(config_of(), kDouble, source(), test::lone_worker());
  const auto expected = losses(straight);

  Trainer first(config_of(), kDouble, source(), everyone());
  losses(first, kSaved);
  const auto saved = save_training(
      folder / "many", {first.config(), first.model(), first.table(), first.state()}, everyone());
  Trainer alone(config_of(), kDouble, source(), test::lone_worker());
  alone.resume(checkpoint::Checkpoint(saved));
  EXPECT_LE(test::largest_difference(losses(alone, kSteps - kSaved),
                                     {expected.begin() + kSaved, expected.end()}),
            1e-9);

  Trainer other(config_of(), kDouble, source(), test::lone_worker());
  losses(other, kSaved);
  // Each worker's own, to be loaded by all: the folder of worker 0.
  if (everyone().rank() == 0) {
    save_training(folder / "one", {other.config(), other.model(), other.table(), other.state()},
                  test::lone_worker());
  }
  everyone().barrier({"saved"});
  Trainer second(config_of(), kDouble, source(), everyone());
  second.resume(checkpoint::Checkpoint(folder / "one" / saved.filename()));
  EXPECT_LE(test::largest_difference(losses(second, kSteps - kSaved),
                                     {expected.begin() + kSaved, expected.end()}),
            1e-9);
  everyone().barrier({"done"});
}

// The gradients alone: the loss and what all workers share stay finite.
TEST(TrainerOfWorkers, SkipAStepTogetherWhenOneExpertsGradientIsNotFinite) {
  Trainer part(config_of(), kDouble, source(), everyone());
  losses(part, 3);
  const at::Tensor before = part.table().master().clone();
  if (everyone().rank() == everyone().size() - 1) {
    // Activations of 1e200 with a projection of 0: their product's gradient is 1e200 squared.
    const auto fill = [&](const char* name, double value) {
      part.table()
          .view(part.table().working(),
                part.table().segment(std::string("layer.1.expert.7.sublayer.0.") + name))
          .fill_(value);
    };
    fill("up.bias", 1e200);
    fill("down.weight", 0);
    fill("down.bias", 0);
  }
  const StepStats stats = part.step();
  EXPECT_TRUE(std::isfinite(stats.loss));
  EXPECT_TRUE(std::isfinite(stats.gradient_norm));
  EXPECT_NE(stats.skipped, "");
  const auto shared = part.table().range(parameters::Owner::kShard, parameters::Owner::kRouter);
  EXPECT_TRUE(at::equal(shared.of(part.table().master()), shared.of(before)));
}

}  // namespace
}  // namespace ballast::training
