// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "ballast/model/model_size.h"
#include "ballast/model/update_counts.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "tests/plan/paper_plan.h"

namespace ballast::plan {
namespace {

using config::Config;
using test::cluster_of;
using testing::HasSubstr;

Config read_preset(const std::string& name) { return test::paper_config(BALLAST_SOURCE_DIR, name); }

const std::vector<std::string>& presets() {
  static const std::vector<std::string> names = {"dense_1.5b", "dense_3b",   "dense_6b",
                                                 "moe_52b",    "switch_52b", "base_44b",
                                                 "base_x2",    "base_large", "switch_44b"};
  return names;
}

TEST(Plan, WeightsGradientsAndMomentsAreThoseOfTheWorkersParameters) {
  for (const std::string& name : presets()) {
    const Config config = read_preset(name);
    const MemoryParts memory = make_plan(config, cluster_of(128)).own().memory;
    const auto held = static_cast<double>(model::parameters_of_worker(config, 128));
    EXPECT_EQ(memory.weights, 6 * held) << name;
    EXPECT_EQ(memory.gradients, 2 * held) << name;
    EXPECT_EQ(memory.optimizer, 8 * held) << name;
    EXPECT_GT(memory.activations, 0) << name;
  }
}

// Width 8, feed-forward 32, 2 blocks, 4 sequences of 16 tokens, in fp32.
TEST(Plan, ActivationsAreWhatTheBackwardPassNeeds) {
  Config config;
  config.model = {
      .vocabulary = 10, .width = 8, .layers = 2, .heads = 2, .hidden = 0, .context = 16};
  config.training.batch = 4;
  Device cpu = find_device("cpu");
  cpu.matrix_flops = cpu.memory_bandwidth = 1e9;
  const auto activations = [&] {
    return make_plan(config, {.workers = 1, .device = cpu, .network = find_network("nvlink")})
        .own()
        .memory.activations;
  };
  const double attention = 6 * 8, feed_forward = 2 * 8 + 32, end = 2 * 8;
  EXPECT_EQ(activations(), 4 * 64 * (2 * (attention + feed_forward) + end));
  config.training.micro_steps = 2;
  EXPECT_EQ(activations(), 4 * 32 * (2 * (attention + feed_forward) + end));
  config.training.recompute = config::Recompute::kBlocks;
  const double entering = 2 * 8;
  EXPECT_EQ(activations(), 4 * 32 * (2 * entering + attention + feed_forward + end));
}

TEST(Plan, BlocksThatAreComputedAgainTakeAThirdMoreTime) {
  Config config = read_preset("dense_1.5b");
  const auto seconds = [&] {
    return make_plan(
               config,
               {.workers = 8, .device = find_device("h200"), .network = find_network("nvlink")})
        .own()
        .step;
  };
  const StepParts kept = seconds();
  config.training.recompute = config::Recompute::kBlocks;
  const StepParts again = seconds();
  EXPECT_DOUBLE_EQ(again.attention, kept.attention * 4 / 3);
  EXPECT_DOUBLE_EQ(again.feed_forward, kept.feed_forward * 4 / 3);
  EXPECT_EQ(again.vocabulary, kept.vocabulary);
  EXPECT_EQ(again.optimizer, kept.optimizer);
}

TEST(Plan, MoreWorkersNeverNeedMoreMemory) {
  for (const std::string& name : presets()) {
    const Config config = read_preset(name);
    double before = 1e300;
    for (const int64_t workers : {8, 16, 32, 64, 128}) {
      const double now = make_plan(config, cluster_of(workers)).own().memory.total();
      EXPECT_LE(now, before) << name << " on " << workers;
      before = now;
    }
  }
}

TEST(Plan, AFasterClusterIsNeverSlower) {
  for (const std::string& name : presets()) {
    const Config config = read_preset(name);
    const Cluster cluster = cluster_of(128);
    const double before = make_plan(config, cluster).own().tokens_per_second;
    for (const auto& change :
         {+[](Cluster& c) { c.device.matrix_flops *= 2; },
          +[](Cluster& c) { c.device.memory_bandwidth *= 2; },
          +[](Cluster& c) { c.device.link_bandwidth *= 2; },
          +[](Cluster& c) { c.device.launch /= 2; }, +[](Cluster& c) { c.network.bandwidth *= 2; },
          +[](Cluster& c) { c.network.latency /= 2; },
          +[](Cluster& c) { c.overlap_gradients = true; }}) {
      Cluster faster = cluster;
      change(faster);
      EXPECT_GE(make_plan(config, faster).own().tokens_per_second, before) << name;
    }
  }
}

// Products of the iteration take time whatever the batch; shards gather whole matrices for them.
TEST(Plan, MuonsProductsTakeTime) {
  for (const char* name : {"dense_1.5b", "dense_3b", "base_44b"}) {
    Config config = read_preset(name);
    const StepParts adam = make_plan(config, cluster_of(128)).own().step;
    config.optimizer.algorithm = config::Algorithm::kMuon;
    const StepParts muon = make_plan(config, cluster_of(128)).own().step;
    EXPECT_GT(muon.optimizer, adam.optimizer) << name;
    EXPECT_EQ(muon.shard_sums > adam.shard_sums, config.training.model_parallel > 1) << name;
    const double products = (muon.optimizer - adam.optimizer) * find_device("v100").matrix_rate();
    const model::ModelUpdates updates = model::count_updates(config);
    const double here =
        config.experts.layers == 0 ? 0 : 1.0 / static_cast<double>(config.experts.count);
    const double least = updates.shared.muon_products + here * updates.experts.muon_products;
    EXPECT_GE(products, least) << name;
    EXPECT_LE(products, 1.5 * least) << name << ": its passes are the smaller part";
  }
}

TEST(Plan, PartsThatASystemLacksTakeNoTime) {
  const StepParts dense = make_plan(read_preset("dense_1.5b"), cluster_of(128)).own().step;
  EXPECT_EQ(dense.experts + dense.assignment + dense.all_to_all + dense.shard_sums, 0);
  EXPECT_GT(dense.gradient_sums, 0);
  const StepParts divided = make_plan(read_preset("dense_3b"), cluster_of(128)).own().step;
  EXPECT_GT(divided.shard_sums, 0);
  Config normed = read_preset("dense_3b");
  normed.model.query_key_norm = config::QueryKeyNorm::kWidth;
  EXPECT_GT(make_plan(normed, cluster_of(128)).own().step.shard_sums, divided.shard_sums);
  const StepParts gated = make_plan(read_preset("switch_52b"), cluster_of(128)).own().step;
  EXPECT_EQ(gated.assignment, 0);
  EXPECT_GT(gated.all_to_all, 0);
  const StepParts base = make_plan(read_preset("base_44b"), cluster_of(128)).own().step;
  EXPECT_GT(base.assignment, 0);
  EXPECT_DOUBLE_EQ(base.total(), base.attention + base.feed_forward + base.experts +
                                     base.assignment + base.vocabulary + base.optimizer +
                                     base.gradient_sums + base.all_to_all + base.shard_sums);
}

TEST(Plan, OneWorkerSendsNothing) {
  Config config = read_preset("base_44b");
  const StepParts step = make_plan(config, cluster_of(1, "h200")).own().step;
  EXPECT_EQ(step.communication(), 0);
}

TEST(Plan, TheShuffleIsHalfOfABaseLayersMessages) {
  Config config = read_preset("base_44b");
  const double with = make_plan(config, cluster_of(128)).own().step.all_to_all;
  config.experts.shuffle = false;
  EXPECT_DOUBLE_EQ(make_plan(config, cluster_of(128)).own().step.all_to_all, with / 2);
}

TEST(Plan, TwoExpertsOfATokenSendTwiceAsManyRows) {
  Cluster cluster = cluster_of(128);
  cluster.network.latency = cluster.network.machine_latency = 0;
  EXPECT_DOUBLE_EQ(make_plan(read_preset("moe_52b"), cluster).own().step.all_to_all,
                   2 * make_plan(read_preset("switch_52b"), cluster).own().step.all_to_all);
}

TEST(Plan, OneLayoutForEachDivisionThatTheModelAllows) {
  const Plan plan = make_plan(read_preset("dense_3b"), cluster_of(128));
  std::vector<int64_t> divisions;
  for (const LayoutPlan& layout : plan.layouts) {
    divisions.push_back(layout.model_parallel);
    EXPECT_EQ(layout.replicas * layout.model_parallel, 128);
  }
  EXPECT_THAT(divisions, testing::ElementsAre(2, 1, 4, 8));  // its own first
  Config odd = read_preset("dense_1.5b");
  odd.model.heads = 2;
  const Plan of_odd = make_plan(odd, cluster_of(128));
  EXPECT_EQ(of_odd.layouts.size(), 2U);
  ASSERT_EQ(of_odd.refused.size(), 2U);
  EXPECT_EQ(of_odd.refused[0].model_parallel, 4);
  EXPECT_THAT(of_odd.refused[0].reason, HasSubstr("model.heads"));
}

TEST(Plan, WhatDoesNotFitIsToldWhatWould) {
  // 128 experts on 32 workers: four times the experts of a worker.
  const Plan plan = make_plan(read_preset("base_44b"), cluster_of(32));
  EXPECT_FALSE(plan.own().fits);
  EXPECT_THAT(plan.advice, testing::Contains(HasSubstr("--workers 64")).Times(0));
  EXPECT_THAT(plan.advice, testing::Contains(HasSubstr("--workers 128")));
  EXPECT_THAT(plan.advice, testing::Contains(HasSubstr("--device a100")));
  // Activations alone are too large.
  Config long_steps = read_preset("dense_1.5b");
  long_steps.training.micro_steps = 1;
  EXPECT_THAT(make_plan(long_steps, cluster_of(128)).advice,
              testing::Contains(HasSubstr("--training.micro_steps")));
  EXPECT_THAT(make_plan(read_preset("base_44b"), cluster_of(128)).advice, testing::IsEmpty());
}

// Does what a line of advice says, "--workers 128: ...", and returns the option.
std::string follow(const std::string& advice, Config& config, Cluster& cluster) {
  const size_t space = advice.find(' '), colon = advice.find(':');
  const std::string option = advice.substr(0, space);
  const std::string value = advice.substr(space + 1, colon - space - 1);
  if (option == "--device") {
    cluster.device = find_device(value);
  } else if (option == "--workers") {
    cluster.workers = std::stoll(value);
  } else if (option == "--model-parallel") {
    config.training.model_parallel = std::stoll(value);
  } else if (option == "--training.micro_steps") {
    config.training.micro_steps = std::stoll(value);
  } else if (option == "--training.recompute") {
    config.training.recompute = config::choice_of<config::Recompute>(value);
  } else if (option == "--training.shard_optimizer") {
    config.training.shard_optimizer = value == "true";
  } else {
    ADD_FAILURE() << "not an option: " << advice;
  }
  return option;
}

TEST(Plan, WhatTheAdviceSaysFitsAndIsAsFastAsItSays) {
  Config long_steps = read_preset("dense_1.5b");
  long_steps.training.micro_steps = 1;
  Config whole = read_preset("dense_3b");
  whole.training.model_parallel = 1;
  std::set<std::string> options;
  for (const auto& [config, workers] : {std::pair{read_preset("base_44b"), 32},
                                        std::pair{long_steps, 128}, std::pair{whole, 128}}) {
    const Plan plan = make_plan(config, cluster_of(workers));
    ASSERT_FALSE(plan.own().fits);
    for (const std::string& advice : plan.advice) {
      Config changed = config;
      Cluster cluster = cluster_of(workers);
      options.insert(follow(advice, changed, cluster));
      const Plan followed = make_plan(changed, cluster);
      EXPECT_TRUE(followed.own().fits) << advice;
      EXPECT_THAT(advice, HasSubstr(format_bytes(followed.own().memory.total()) + " a worker"));
      EXPECT_THAT(advice, HasSubstr(format_count(followed.own().tokens_per_second) + " tokens/s"));
    }
  }
  EXPECT_THAT(options, testing::UnorderedElementsAre(
                           "--device", "--workers", "--model-parallel", "--training.micro_steps",
                           "--training.recompute", "--training.shard_optimizer"));
}

TEST(Plan, CpuWorkersOfOneMachineShareItsRatesAndMemory) {
  Config config;
  config.model = {
      .vocabulary = 256, .width = 64, .layers = 2, .heads = 2, .hidden = 0, .context = 32};
  config.training.batch = 8;
  Cluster cluster = cluster_of(1, "cpu");
  cluster.device.matrix_flops = 1e11;
  cluster.device.memory_bandwidth = 1e10;
  const LayoutPlan alone = make_plan(config, cluster).own();
  cluster.device.memory = 1.1 * alone.memory.total();
  EXPECT_TRUE(make_plan(config, cluster).own().fits);
  cluster.workers = 2;
  EXPECT_EQ(cluster.of_worker().matrix_flops, 0.5e11);
  EXPECT_EQ(cluster.of_worker().memory_bandwidth, 0.5e10);
  // Half of the tokens each at half of the rates; both read all weights.
  const LayoutPlan shared = make_plan(config, cluster).own();
  EXPECT_GE(shared.step.compute(), alone.step.compute());
  EXPECT_FALSE(shared.fits);
  EXPECT_LT(shared.tokens_per_second, alone.tokens_per_second);
  // Two machines share nothing.
  cluster.network.machine_workers = 1;
  EXPECT_EQ(cluster.of_worker().matrix_flops, 1e11);
  const LayoutPlan apart = make_plan(config, cluster).own();
  EXPECT_LT(apart.step.compute(), alone.step.compute());
  EXPECT_TRUE(apart.fits);
  // GPUs never do.
  EXPECT_EQ(cluster_of(8).of_worker().matrix_flops, find_device("v100").matrix_flops);
}

TEST(Plan, WorkersThatDoNotSuitTheModelAreRefused) {
  const auto refused = [](const Config& config, const Cluster& cluster, const char* says) {
    try {
      make_plan(config, cluster);
      ADD_FAILURE() << "accepted; wanted: " << says;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  refused(read_preset("base_44b"), cluster_of(96), "training.batch");
  refused(read_preset("dense_3b"), cluster_of(3), "model_parallel");
  refused(read_preset("dense_1.5b"), cluster_of(1, "cpu"), "--flops");
  Config wide = read_preset("dense_1.5b");
  wide.training.precision = config::Precision::kFp32;
  refused(wide, cluster_of(128), "v100 is planned in half precision");
  Cluster no_way_out = cluster_of(128);
  no_way_out.network.bandwidth = 0;
  refused(read_preset("dense_1.5b"), no_way_out, "bandwidth");
}

TEST(Device, AWrongNameIsToldTheRightOnes) {
  try {
    find_device("abacus");
    FAIL() << "it was found";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("v100, a100, h100, h200, cpu"));
  }
}

}  // namespace
}  // namespace ballast::plan
