// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, as the trainer tells it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/step/step_clock.h"
#include "ballast/training/trainer.h"
#include "tests/support/lone_worker.h"
#include "tests/support/stalled_gpu.h"
#include "tests/training/counting_runs.h"

namespace ballast::training {
namespace {

using test::lone_worker;
using test::losses;
using testing::ElementsAre;

std::vector<batches::WeightedSource> source() { return test::counting_source(4000, 20); }

config::Config config_of(const std::string& router, int64_t log_every) {
  config::Config config;
  config.model = {.vocabulary = 20, .width = 32, .layers = 2, .heads = 2, .context = 16};
  config.training.batch = 8;
  config.training.micro_steps = 2;
  config.training.steps = 30;
  config.training.log_every = log_every;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  if (router == "dense") return config;
  config.experts.router = router;
  if (router != "base") config.experts.placement = config::Placement::kReplace;
  config.experts.layers = 1;
  config.experts.count = 4;
  config.experts.groups = 2;
  config.experts.sublayers = 1;
  return config;
}

constexpr const char* kRouters[] = {"dense", "base", "switch", "sparsely_gated"};

std::vector<std::string> names_of(const std::vector<step::PartSeconds>& parts) {
  std::vector<std::string> names;
  for (const step::PartSeconds& part : parts) names.emplace_back(step::part_name(part.part));
  return names;
}

void expect_within_the_step(const StepStats& stats) {
  double sum = 0;
  for (const step::PartSeconds& part : stats.parts) {
    EXPECT_GE(part.seconds, 0) << step::part_name(part.part);
    sum += part.seconds;
  }
  EXPECT_LE(sum, stats.seconds);
}

void expect_the_same_bits(const model::ComputePlace& place) {
  for (const char* router : kRouters) {
    SCOPED_TRACE(router);
    Trainer each(config_of(router, 1), place, source(), test::lone_worker()),
        rare(config_of(router, 1000), place, source(), test::lone_worker());
    EXPECT_THAT(test::losses(each, 12), testing::ElementsAreArray(test::losses(rare, 12)));
    EXPECT_TRUE(at::equal(each.table().master(), rare.table().master()));
    EXPECT_TRUE(at::equal(each.table().second_moment(), rare.table().second_moment()));
  }
}

TEST(StepParts, AreToldOfStepsThatAreLogged) {
  Trainer trainer(config_of("dense", 4), {}, source(), test::lone_worker());
  for (int64_t step = 1; step <= 30; ++step) {
    const StepStats stats = trainer.step();
    EXPECT_EQ(stats.parts.empty(), step != 1 && step % 4 != 0 && step != 30) << step;
    expect_within_the_step(stats);
  }
}

TEST(StepParts, AreThoseTheModelHas) {
  const auto parts_of = [](const config::Config& config) {
    return names_of(Trainer(config, {}, source(), test::lone_worker()).step().parts);
  };
  EXPECT_THAT(parts_of(config_of("dense", 1)),
              ElementsAre("attention", "feed_forward", "vocabulary", "optimizer"));
  for (const char* router : {"base", "switch", "sparsely_gated"}) {
    EXPECT_THAT(parts_of(config_of(router, 1)),
                ElementsAre("attention", "feed_forward", "experts", "assignment", "vocabulary",
                            "optimizer"))
        << "nobody to communicate with";
  }
  config::Config replaced = config_of("switch", 1);
  replaced.experts.layers = 2;
  EXPECT_THAT(parts_of(replaced),
              ElementsAre("attention", "experts", "assignment", "vocabulary", "optimizer"));
}

TEST(StepParts, ChangeNoBitOfARun) { expect_the_same_bits({}); }

model::ComputePlace gpu() {
  return model::choose_place({.device = config::DeviceChoice::kCuda, .deterministic = true});
}

TEST(StepPartsCuda, ChangeNoBitOfARun) { expect_the_same_bits(gpu()); }

TEST(StepPartsCuda, AreTheDevicesTime) {
  for (const char* router : kRouters) {
    SCOPED_TRACE(router);
    Trainer trainer(config_of(router, 1), gpu(), source(), test::lone_worker());
    for (int64_t step = 0; step < 5; ++step) {
      const StepStats stats = trainer.step();
      expect_within_the_step(stats);
      for (const step::PartSeconds& part : stats.parts) EXPECT_GT(part.seconds, 0);
      EXPECT_EQ(stats.parts.size(), std::string(router) == "dense" ? 4U : 6U);
    }
  }
}

// The events are in the stream: to switch is not to wait.
TEST(StepPartsCuda, AreTakenWithoutWaitingForTheGpu) {
  const model::ComputePlace place = gpu();
  parameters::ParameterTable table;
  const config::Config config = config_of("base", 1);
  const model::LanguageModel model(config, table, test::lone_worker());
  table.allocate({.device = place.device, .working = place.working, .master = place.master});
  table.initialize(1);
  const at::Tensor tokens = (at::arange(64) * 7).remainder(20).view({4, 16}).to(place.device);
  step::StepClock clock(place.device);
  const auto pass = [&](uint64_t step) {
    const at::Tensor hidden =
        model.forward(tokens, {.mode = experts::RoutingMode::kBalanced,
                               .training = experts::TrainingRoute{.groups = 2, .step = step},
                               .watch = &clock});
    torch::autograd::backward(
        {hidden}, {model.losses_and_gradient(hidden, tokens.view({-1}), 1.0 / 64).gradient});
  };
  for (uint64_t step = 0; step < 2; ++step) {
    clock.start();
    pass(step);
    clock.stop();
  }
  {
    test::StalledGpu stalled;
    clock.start();
    pass(2);
    EXPECT_TRUE(stalled.stands());
  }
  clock.stop();
  EXPECT_THAT(names_of(clock.read()),
              ElementsAre("attention", "feed_forward", "experts", "assignment", "vocabulary"));
}

}  // namespace
}  // namespace ballast::training
