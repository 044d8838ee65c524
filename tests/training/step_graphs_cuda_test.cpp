// SPDX-License-Identifier: Apache-2.0
// A step recorded as a graph is the step computed plainly.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/training/trainer.h"
#include "tests/support/lone_worker.h"
#include "tests/training/counting_runs.h"
#include "tests/training/host_waits.h"

namespace ballast {
namespace {

using test::lone_worker;

Config config_of(const std::string& router, int64_t groups) {
  Config config;
  config.model = {.vocabulary = 24, .width = 32, .layers = 4, .heads = 2, .context = 16};
  config.training.batch = 8;
  config.training.micro_steps = 2;
  config.training.steps = 40;
  config.training.log_every = 7;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  if (router == "dense") return config;
  config.experts.layers = 2;
  config.experts.count = 4;
  config.experts.groups = groups;
  if (router != "base") {
    config.experts.router = router;
    config.experts.placement = "replace";
    config.experts.second_expert = "random";
  }
  return config;
}

std::vector<WeightedSource> source() { return test::counting_source(3000, 24); }

ComputePlace gpu(const std::string& precision) {
  return choose_place({.device = "cuda", .precision = precision, .deterministic = true});
}

struct Case {
  std::string router;
  int64_t groups = 1;
  std::string precision;
};

std::string name_of(const Case& c) {
  return c.router + ", " + std::to_string(c.groups) + " groups, " + c.precision;
}

std::vector<Case> cases() {
  return {{"dense", 1, "bf16"}, {"dense", 1, "fp64"},  {"base", 1, "bf16"},
          {"base", 4, "fp64"},  {"switch", 2, "bf16"}, {"sparsely_gated", 2, "fp32"}};
}

TEST(StepGraphsCuda, ReplaysAreTheStepsComputedPlainly) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const ComputePlace place = gpu(c.precision);
    Config config = config_of(c.router, c.groups);
    Trainer recorded(config, place, source(), lone_worker());
    config.training.graph = false;
    Trainer plain(config, place, source(), lone_worker());
    EXPECT_EQ(recorded.why_plain(), "");
    EXPECT_NE(plain.why_plain(), "");
    for (int64_t step = 0; step < 30; ++step) {
      const StepStats got = recorded.step(), expected = plain.step();
      ASSERT_EQ(got.loss, expected.loss) << "step " << step;
      ASSERT_EQ(got.gradient_norm, expected.gradient_norm) << "step " << step;
      ASSERT_EQ(got.parts.size(), expected.parts.size()) << "step " << step;
      ASSERT_EQ(got.layers.size(), expected.layers.size());
      for (size_t i = 0; i < got.layers.size(); ++i) {
        EXPECT_EQ(got.layers[i].greedy_share, expected.layers[i].greedy_share);
        EXPECT_EQ(got.layers[i].relative_gap, expected.layers[i].relative_gap);
        EXPECT_EQ(got.layers[i].dropped_share, expected.layers[i].dropped_share);
        EXPECT_GT(got.layers[i].assign_seconds, 0);
      }
    }
    EXPECT_EQ(recorded.why_plain(), "") << "it was recorded";
    EXPECT_TRUE(at::equal(recorded.table().master(), plain.table().master()));
  }
}

// Parts of a replayed step are those of its own replay.
TEST(StepGraphsCuda, TakeTheTimeOfPartsInEveryReplay) {
  Config config = config_of("base", 1);
  config.training.log_every = 1;
  Trainer trainer(config, gpu("bf16"), source(), lone_worker());
  for (int64_t step = 0; step < 12; ++step) {
    const StepStats stats = trainer.step();
    double sum = 0;
    for (const PartSeconds& part : stats.parts) {
      EXPECT_GT(part.seconds, 0);
      sum += part.seconds;
    }
    EXPECT_EQ(stats.parts.size(), 6U);
    EXPECT_LE(sum, stats.seconds);
  }
}

// A step whose loss is not finite moves nothing, and the next goes on.
TEST(StepGraphsCuda, BadStepsMoveNothing) {
  Config config = config_of("dense", 1);
  config.training.max_skipped = 30;
  Trainer trainer(config, gpu("fp32"), source(), lone_worker());
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(trainer.step().skipped, "");
  const at::Tensor master = trainer.table().master();
  const at::Tensor weights = master.clone();
  master[0].fill_(std::numeric_limits<float>::quiet_NaN());
  trainer.table().working()[0].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor moments = trainer.table().first_moment().clone();
  EXPECT_NE(trainer.step().skipped, "");
  EXPECT_TRUE(at::equal(trainer.table().first_moment(), moments));
  master.copy_(weights);
  trainer.table().working().copy_(weights);
  EXPECT_EQ(trainer.step().skipped, "");
  EXPECT_FALSE(at::equal(master, weights));
}

// What is recorded is what plain steps compute: nothing in them waits for the GPU.
TEST(StepGraphsCuda, NothingWaitsForTheGpuBeforeAStepIsRead) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    Trainer trainer(config_of(c.router, c.groups), gpu(c.precision), source(), lone_worker());
    for (int64_t step = 0; step < 3; ++step) trainer.step();
    const test::HostWaits found = test::host_waits(trainer);
    EXPECT_THAT(found.waits, testing::IsEmpty());
    EXPECT_GT(found.launches, 100) << "the profiler saw the step";
  }
}

TEST(StepGraphsCuda, AWaitWithinAStepIsCounted) {
  Trainer trainer(config_of("dense", 1), gpu("bf16"), source(), lone_worker());
  for (int64_t step = 0; step < 3; ++step) trainer.step();
  const at::Tensor one = at::ones({1}, trainer.place().device);
  size_t waits = 0;
  const test::HostWaits found = test::host_waits(trainer, [&](StepPart part) {
    if (part != StepPart::kAttention) return;
    (void)one.item<float>();
    ++waits;
  });
  EXPECT_GE(waits, 16U) << "four blocks in two micro-steps, forward and backward";
  EXPECT_EQ(found.waits.size(), waits);
}

TEST(StepGraphsCuda, StepsThatCountOnTheHostAreComputedPlainly) {
  Config config = config_of("switch", 2);
  config.experts.capacity = 0;
  Trainer trainer(config, gpu("bf16"), source(), lone_worker());
  EXPECT_NE(trainer.why_plain(), "");
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(trainer.step().skipped, "");
}

}  // namespace
}  // namespace ballast
