// SPDX-License-Identifier: Apache-2.0
// A step recorded as a graph is the step computed plainly.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/training/trainer.h"
#include "tests/support/lone_worker.h"
#include "tests/training/host_waits.h"
#include "tests/training/paired_runs.h"

namespace ballast::training {
namespace {

using test::gpu;
using test::lone_worker;

config::Config config_of(const std::string& router, int64_t groups) {
  return test::small_config(router, groups);
}

std::vector<batches::WeightedSource> source() { return test::small_source(); }

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
    const model::ComputePlace place = test::gpu(c.precision);
    config::Config config = config_of(c.router, c.groups);
    Trainer recorded(config, place, source(), test::lone_worker());
    config.training.graph = false;
    Trainer plain(config, place, source(), test::lone_worker());
    EXPECT_EQ(recorded.why_plain(), "");
    EXPECT_NE(plain.why_plain(), "");
    test::expect_same_steps(recorded, plain, 30);
    EXPECT_EQ(recorded.why_plain(), "") << "it was recorded";
  }
}

TEST(StepGraphsCuda, LeaveTimeForOtherThingsWhileTheGpuComputes) {
  Trainer trainer(config_of("base", 1), test::gpu("bf16"), source(), test::lone_worker());
  std::vector<int64_t> seen;
  const auto look = [&] { seen.push_back(trainer.state().step); };
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(trainer.step(nullptr, look).step, i + 1);
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2, 3, 4, 5)) << "the steps done by then";
}

// Parts of a replayed step are those of its own replay.
TEST(StepGraphsCuda, TakeTheTimeOfPartsInEveryReplay) {
  config::Config config = config_of("base", 1);
  config.training.log_every = 1;
  Trainer trainer(config, test::gpu("bf16"), source(), test::lone_worker());
  for (int64_t step = 0; step < 12; ++step) {
    const StepStats stats = trainer.step();
    double sum = 0;
    for (const step::PartSeconds& part : stats.parts) {
      EXPECT_GT(part.seconds, 0);
      sum += part.seconds;
    }
    EXPECT_EQ(stats.parts.size(), 6U);
    for (const LayerStats& layer : stats.layers) EXPECT_GT(layer.assign_seconds, 0);
    EXPECT_LE(sum, stats.seconds);
  }
}

// A step whose loss is not finite moves nothing, and the next goes on.
TEST(StepGraphsCuda, BadStepsMoveNothing) {
  config::Config config = config_of("dense", 1);
  config.training.max_skipped = 30;
  Trainer trainer(config, test::gpu("fp32"), source(), test::lone_worker());
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
    Trainer trainer(config_of(c.router, c.groups), test::gpu(c.precision), source(),
                    test::lone_worker());
    for (int64_t step = 0; step < 3; ++step) trainer.step();
    const test::HostWaits found = test::host_waits(trainer);
    EXPECT_THAT(found.waits, testing::IsEmpty());
    EXPECT_GT(found.launches, 100) << "the profiler saw the step";
  }
}

TEST(StepGraphsCuda, AWaitWithinAStepIsCounted) {
  Trainer trainer(config_of("dense", 1), test::gpu("bf16"), source(), test::lone_worker());
  for (int64_t step = 0; step < 3; ++step) trainer.step();
  const at::Tensor one = at::ones({1}, trainer.place().device);
  size_t waits = 0;
  const test::HostWaits found = test::host_waits(trainer, [&](step::StepPart part) {
    if (part != step::StepPart::kAttention) return;
    (void)one.item<float>();
    ++waits;
  });
  EXPECT_GE(waits, 16U) << "four blocks in two micro-steps, forward and backward";
  EXPECT_EQ(found.waits.size(), waits);
}

TEST(StepGraphsCuda, StepsThatCountOnTheHostAreComputedPlainly) {
  config::Config config = config_of("switch", 2);
  config.experts.capacity = 0;
  Trainer trainer(config, test::gpu("bf16"), source(), test::lone_worker());
  EXPECT_NE(trainer.why_plain(), "");
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(trainer.step().skipped, "");
}

}  // namespace
}  // namespace ballast::training
