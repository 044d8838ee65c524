// SPDX-License-Identifier: Apache-2.0
// What the knobs bring that change how numbers and tokens travel.
#include <gtest/gtest.h>

#include "tests/plan/paper_plan.h"

namespace ballast::plan {
namespace {

using config::Config;
using test::cluster_of;
using test::paper_config;

// Chunks of 8 MiB are summed and gathered by themselves; what Muon moves is not divided.
TEST(PlanTravel, DividedStateHasMoreMessagesAndMuonsMatricesAreSummedWhole) {
  Config config = paper_config(BALLAST_SOURCE_DIR, "dense_1.5b");
  const auto sums = [&](config::Algorithm algorithm, bool divided) {
    config.optimizer.algorithm = algorithm;
    config.training.shard_optimizer = divided;
    return make_plan(config, cluster_of(128)).own().step.gradient_sums;
  };
  const double whole = sums(config::Algorithm::kAdam, false);
  const double more = sums(config::Algorithm::kAdam, true) - whole;
  EXPECT_GT(more, 0);
  EXPECT_LT(more, whole / 2);
  EXPECT_NEAR(sums(config::Algorithm::kMuon, false), whole, 1e-9);
  EXPECT_LT(sums(config::Algorithm::kMuon, true) - whole, more / 4);
}

TEST(PlanTravel, TokensInTwoHopsTakeFewerMessages) {
  Config config = paper_config(BALLAST_SOURCE_DIR, "base_44b");
  Cluster cluster = cluster_of(128);
  cluster.network.latency = 1;
  const double straight = make_plan(config, cluster).own().step.all_to_all;
  config.experts.hops = 2;
  const double hops = make_plan(config, cluster).own().step.all_to_all;
  // Of each of 8 calls, messages to 15 other machines instead of 120 workers.
  EXPECT_NEAR(straight - hops, 8 * (120 - 15) * static_cast<double>(config.training.micro_steps),
              1);
}

// A cluster whose messages cost nothing but their bytes.
Cluster cluster_without_latency(int64_t workers, const std::string& device) {
  Cluster cluster = cluster_of(workers, device);
  cluster.network.latency = cluster.network.machine_latency = 0;
  return cluster;
}

TEST(PlanTravel, ChunksOfTokensTravelWhileExpertsCompute) {
  Config config = paper_config(BALLAST_SOURCE_DIR, "base_44b");
  config.experts.shuffle = false;
  Cluster cluster = cluster_without_latency(128, "v100");
  const auto own = [&] { return make_plan(config, cluster).own(); };
  const LayoutPlan once = own();
  config.experts.chunks = 4;
  const LayoutPlan chunks = own();
  // Hidden is what travels beside the experts, who compute less than the whole part.
  const double hidden = once.step.all_to_all - chunks.step.all_to_all;
  EXPECT_GT(hidden, 0);
  // The first chunk on its way there and the last one on its way back are beside nothing.
  EXPECT_LE(hidden, once.step.all_to_all * 3 / 4 + 1e-9);
  EXPECT_LE(hidden, chunks.step.experts);
  // Each chunk reads the experts' weights again.
  EXPECT_GT(chunks.step.experts, once.step.experts);
  EXPECT_GT(chunks.memory.buffers, once.memory.buffers);
  // Each chunk is a message of its own.
  cluster.network.latency = 1;
  const double late = own().step.all_to_all;
  config.experts.chunks = 1;
  EXPECT_GT(late, own().step.all_to_all);
}

// On a slow network: all seconds in which experts compute, and no more.
TEST(PlanTravel, ChunksAndGradientsDoNotTravelInTheSameSeconds) {
  Config config = paper_config(BALLAST_SOURCE_DIR, "base_44b");
  config.experts.shuffle = false;
  Cluster cluster = cluster_without_latency(128, "v100");
  cluster.overlap_gradients = true;
  cluster.network.bandwidth = 1e6;
  const StepParts once = make_plan(config, cluster).own().step;
  config.experts.chunks = 4;
  const StepParts chunks = make_plan(config, cluster).own().step;
  const double steps = static_cast<double>(config.training.micro_steps);
  const double hidden_backward = (once.all_to_all - chunks.all_to_all) / steps * 2 / 3;
  const double more_backward = (chunks.compute() - once.compute()) / steps * 2 / 3;
  EXPECT_GT(hidden_backward, more_backward);
  EXPECT_NEAR(chunks.gradient_sums - once.gradient_sums, hidden_backward - more_backward,
              1e-9 * once.gradient_sums);
}

TEST(PlanTravel, ChunksOfTokensHideNothingWhereNothingMovesMeanwhile) {
  Config config;
  config.model = {.vocabulary = 256, .width = 64, .layers = 2, .heads = 2, .context = 32};
  config.training.batch = 8;
  config.experts.layers = 1;
  config.experts.count = 4;
  Cluster cluster = cluster_without_latency(4, "cpu");
  cluster.device.matrix_flops = 1e11;
  cluster.device.memory_bandwidth = 1e10;
  const auto all_to_all = [&](int64_t chunks) {
    config.experts.chunks = chunks;
    return make_plan(config, cluster).own().step.all_to_all;
  };
  // MPI within a machine: messages are copies by the cores that compute.
  EXPECT_NEAR(all_to_all(4), all_to_all(1), 1e-12);
  // Of two machines, what goes between them alone is hidden: next to nothing here.
  cluster.network.machine_workers = 2;
  cluster.network.bandwidth = 1e15;
  EXPECT_NEAR(all_to_all(4), all_to_all(1), 1e-9);
  cluster.network.machine_workers = 1;
  cluster.network.bandwidth = 1e7;
  EXPECT_LT(all_to_all(4), all_to_all(1));
  // Gates without a capacity send all at once.
  config.experts.router = "switch";
  config.experts.placement = config::Placement::kReplace;
  config.experts.capacity = 0;
  EXPECT_EQ(all_to_all(4), all_to_all(1));
}

}  // namespace
}  // namespace ballast::plan
