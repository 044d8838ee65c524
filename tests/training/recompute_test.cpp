// SPDX-License-Identifier: Apache-2.0
// A run that computes its blocks again on the way back is the run that keeps them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/training/trainer.h"
#include "tests/support/lone_worker.h"
#include "tests/training/paired_runs.h"

namespace ballast::training {
namespace {

using test::expect_same_steps;
using test::gpu;
using test::lone_worker;

config::Config config_of(const std::string& router) { return test::small_config(router, 2); }

std::vector<batches::WeightedSource> source() { return test::small_source(); }

TEST(Recompute, ARunIsTheSameToTheBit) {
  for (const char* router : {"dense", "base", "switch", "sparsely_gated"}) {
    for (const model::ComputePlace& place : {model::ComputePlace{}, test::kDouble}) {
      SCOPED_TRACE(std::string(router) + ", " + at::toString(place.working));
      config::Config config = config_of(router);
      Trainer kept(config, place, source(), test::lone_worker());
      config.training.recompute = config::Recompute::kBlocks;
      Trainer again(config, place, source(), test::lone_worker());
      test::expect_same_steps(again, kept, 9);
    }
  }
}

TEST(RecomputeCuda, ARunIsTheSameToTheBit) {
  for (const char* router : {"dense", "base", "switch", "sparsely_gated"}) {
    for (const char* precision : {"bf16", "fp32", "fp64"}) {
      SCOPED_TRACE(std::string(router) + ", " + precision);
      config::Config config = config_of(router);
      config.training.graph = false;
      Trainer kept(config, test::gpu(precision), source(), test::lone_worker());
      config.training.recompute = config::Recompute::kBlocks;
      Trainer again(config, test::gpu(precision), source(), test::lone_worker());
      test::expect_same_steps(again, kept, 9);
    }
  }
}

// Recorded and replayed, clocked steps too: the way back within the way back is part of the graph.
TEST(RecomputeCuda, ReplaysAreTheStepsComputedPlainly) {
  for (const char* router : {"dense", "base", "switch"}) {
    for (const char* precision : {"bf16", "fp64"}) {
      SCOPED_TRACE(std::string(router) + ", " + precision);
      config::Config config = config_of(router);
      config.training.recompute = config::Recompute::kBlocks;
      Trainer recorded(config, test::gpu(precision), source(), test::lone_worker());
      config.training.graph = false;
      Trainer plain(config, test::gpu(precision), source(), test::lone_worker());
      test::expect_same_steps(recorded, plain, 30);
      EXPECT_EQ(recorded.why_plain(), "") << "it was recorded";
    }
  }
}

}  // namespace
}  // namespace ballast::training
