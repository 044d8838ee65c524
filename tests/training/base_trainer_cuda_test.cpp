// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: a model with BASE layers is trained there.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/loading/batch_tensors.h"
#include "ballast/training/trainer.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/lone_worker.h"
#include "tests/support/stalled_gpu.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"

namespace ballast::training {
namespace {

using test::kDouble;
using test::lone_worker;
using test::losses;

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, 20); }

// Routing groups of 30 tokens for 8 experts.
config::Config config_of(int64_t micro_steps = 1) {
  config::Config config;
  config.model = {.vocabulary = 20, .width = 32, .layers = 2, .heads = 2, .context = 15};
  config.experts.layers = 2;
  config.experts.count = 8;
  config.experts.sublayers = 1;
  config.experts.groups = 4;
  config.training.batch = 8 * micro_steps;
  config.training.micro_steps = micro_steps;
  config.training.steps = 30;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  return config;
}

model::ComputePlace gpu(const std::string& precision) {
  return model::choose_place({.device = config::DeviceChoice::kCuda,
                              .precision = config::choice_of<config::Precision>(precision),
                              .deterministic = true});
}

TEST(BaseTrainerCuda, LearnsInBf16AndResumesToTheBit) {
  const test::TemporaryFolder folder;
  const config::Config config = config_of();
  const model::ComputePlace place = gpu("bf16");
  ASSERT_EQ(place.working, at::kBFloat16);
  ASSERT_EQ(place.master, at::kFloat);
  Trainer straight(config, place, source(), test::lone_worker()),
      first(config, place, source(), test::lone_worker()),
      second(config, place, source(), test::lone_worker());
  EXPECT_EQ(straight.table().master().scalar_type(), at::kFloat);
  const auto expected = test::losses(straight, 30);
  EXPECT_LT(expected.back(), expected.front() - 1);
  test::losses(first, 13);
  second.resume(checkpoint::Checkpoint(save_training(
      folder.path(), {config, first.model(), first.table(), first.state()}, test::lone_worker())));
  EXPECT_THAT(test::losses(second, 17),
              ::testing::ElementsAreArray(expected.begin() + 13, expected.end()));
  EXPECT_TRUE(at::equal(straight.table().master(), second.table().master()));
  EXPECT_TRUE(at::equal(straight.table().second_moment(), second.table().second_moment()));
  for (size_t i = 0; i < 2; ++i) {
    const auto prices = [&](const Trainer& t) -> const experts::PriceAverage& {
      return *t.model().expert_layers()[i]->router().prices();
    };
    EXPECT_TRUE(at::equal(prices(straight).value(), prices(second).value()));
    EXPECT_TRUE(at::equal(prices(straight).start(), prices(second).start()));
    EXPECT_GT(prices(straight).value().abs().max().item<double>(), 0);
  }
}

TEST(BaseTrainerCuda, TellsHowItsLayersRoute) {
  for (const double allowed : {0.0, 0.001, 0.1}) {
    config::Config config = config_of(2);
    config.experts.assignment_gap = allowed;
    Trainer trainer(config, gpu("fp32"), source(), test::lone_worker());
    const double before = trainer.step().loss;
    StepStats stats;
    for (int64_t i = 1; i < 30; ++i) {
      stats = trainer.step();
      ASSERT_EQ(stats.layers.size(), 2U);
      for (const LayerStats& layer : stats.layers) {
        EXPECT_GT(layer.greedy_share, 0);
        EXPECT_LE(layer.greedy_share, 1);
        EXPECT_GT(layer.assign_seconds, 0);
        EXPECT_GE(layer.relative_gap, 0);
        EXPECT_LE(layer.relative_gap, allowed + 1e-6);  // rounding in fp32
        EXPECT_NEAR(layer.prices.sum().item<double>(), 0, 1e-9) << "prices less their mean";
      }
    }
    EXPECT_LT(stats.loss, before - 1);
  }
}

// The assignments of the CPU's run are repeated on the GPU: what is left is rounding in fp64, of
// about 1e-15 a step, which ten steps of Adam may blow up where a gradient is nearly zero.
TEST(BaseTrainerCuda, ComputesTheLossesOfTheCpuInFp64) {
  const model::ComputePlace on_gpu = gpu("fp64");
  for (const int64_t micro_steps : {1, 2}) {
    test::MemoryTape tape;
    Trainer there(config_of(micro_steps), on_gpu, source(), test::lone_worker()),
        here(config_of(micro_steps), {.working = at::kDouble, .master = at::kDouble}, source(),
             test::lone_worker());
    here.use_tape(&tape);
    const auto expected = test::losses(here, 10);
    EXPECT_LT(expected.back(), expected.front() - 0.2) << "it learns";
    there.use_tape(&tape);
    const auto got = test::losses(there, 10);
    EXPECT_EQ(tape.replayed, 2 * 10 * micro_steps);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-7) << i;
  }
}

// From the batch on the host to the last gradient: as the trainer does it.
TEST(BaseTrainerCuda, AMicroStepNeverWaitsForTheGpu) {
  const config::Config config = config_of();
  const model::ComputePlace place = gpu("bf16");
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, test::lone_worker());
  table.allocate({.device = place.device, .working = place.working, .master = place.master});
  table.initialize(1);
  const batches::BatchStream batches(source(),
                                     {.context = 15, .global_batch = 8, .micro_steps = 1});
  const auto forward = [&](uint64_t step) {
    const batches::Batch batch = batches.at(step, 0, 0, 1);
    const loading::BatchTensors tensors = loading::to_device(batch, place.device);
    const at::Tensor hidden = model.forward(
        tensors.inputs, {.mode = experts::RoutingMode::kBalanced,
                         .training = experts::TrainingRoute{.groups = 4, .seed = 1, .step = step}});
    return std::pair(hidden, kernels::next_token_losses_and_gradient(
                                 hidden, model.token_embedding(), tensors.targets, 1.0 / (8 * 15)));
  };
  const auto backward = [](const auto& result) {
    torch::autograd::backward({result.first}, {result.second.gradient});
  };
  for (uint64_t step = 0; step < 2; ++step) backward(forward(step));
  at::Tensor sum;
  {
    test::StalledGpu stalled;
    const auto result = forward(2);
    EXPECT_TRUE(stalled.stands()) << "forward";
    backward(result);
    EXPECT_TRUE(stalled.stands()) << "backward";
    sum = result.second.losses.mean();
  }
  EXPECT_NEAR(sum.item<double>(), std::log(20), 0.1)
      << "an untrained model, on a batch that arrived";
}

}  // namespace
}  // namespace ballast::training
