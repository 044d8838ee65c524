// SPDX-License-Identifier: Apache-2.0
// A run that computes its blocks again on the way back is the run that keeps them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/training/trainer.h"
#include "tests/support/lone_worker.h"
#include "tests/training/counting_runs.h"

namespace ballast {
namespace {

using test::lone_worker;

Config config_of(const std::string& router) {
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
  config.experts.groups = 2;
  config.experts.router = router;
  if (router != "base") config.experts.placement = "replace";
  return config;
}

std::vector<WeightedSource> source() { return test::counting_source(3000, 24); }

// Steps with the same losses and norms, then the same weights.
void expect_same_steps(Trainer& got, Trainer& expected, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    const StepStats a = got.step(), b = expected.step();
    ASSERT_EQ(a.loss, b.loss) << "step " << step;
    ASSERT_EQ(a.gradient_norm, b.gradient_norm) << "step " << step;
    ASSERT_EQ(a.parts.size(), b.parts.size()) << "step " << step;
  }
  EXPECT_TRUE(at::equal(got.table().master(), expected.table().master()));
}

TEST(Recompute, ARunIsTheSameToTheBit) {
  for (const char* router : {"dense", "base", "switch", "sparsely_gated"}) {
    for (const ComputePlace& place : {ComputePlace{}, test::kDouble}) {
      SCOPED_TRACE(std::string(router) + ", " + at::toString(place.working));
      Config config = config_of(router);
      Trainer kept(config, place, source(), lone_worker());
      config.training.recompute = "blocks";
      Trainer again(config, place, source(), lone_worker());
      expect_same_steps(again, kept, 9);
    }
  }
}

ComputePlace gpu(const std::string& precision) {
  return choose_place({.device = "cuda", .precision = precision, .deterministic = true});
}

TEST(RecomputeCuda, ARunIsTheSameToTheBit) {
  for (const char* router : {"dense", "base", "switch", "sparsely_gated"}) {
    for (const char* precision : {"bf16", "fp32", "fp64"}) {
      SCOPED_TRACE(std::string(router) + ", " + precision);
      Config config = config_of(router);
      config.training.graph = false;
      Trainer kept(config, gpu(precision), source(), lone_worker());
      config.training.recompute = "blocks";
      Trainer again(config, gpu(precision), source(), lone_worker());
      expect_same_steps(again, kept, 9);
    }
  }
}

// Recorded and replayed, clocked steps too: the way back within the way back is part of the graph.
TEST(RecomputeCuda, ReplaysAreTheStepsComputedPlainly) {
  for (const char* router : {"dense", "base", "switch"}) {
    for (const char* precision : {"bf16", "fp64"}) {
      SCOPED_TRACE(std::string(router) + ", " + precision);
      Config config = config_of(router);
      config.training.recompute = "blocks";
      Trainer recorded(config, gpu(precision), source(), lone_worker());
      config.training.graph = false;
      Trainer plain(config, gpu(precision), source(), lone_worker());
      expect_same_steps(recorded, plain, 30);
      EXPECT_EQ(recorded.why_plain(), "") << "it was recorded";
    }
  }
}

}  // namespace
}  // namespace ballast
