// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp. A step of several workers that was recorded as a
// graph is the step computed plainly. Where tensors do not go from GPU to GPU all are plain.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "ballast/training/trainer.h"
#include "tests/comm/divisions.h"
#include "tests/comm/workers.h"
#include "tests/training/host_waits.h"
#include "tests/training/paired_runs.h"

namespace ballast::training {
namespace {

using at::Tensor;
using test::everyone;
using testing::HasSubstr;
using testing::IsEmpty;

struct Case {
  std::string router, precision = "bf16";
  bool shuffle = true;
  int64_t micro_steps = 1;
  bool shard_optimizer = false;
  int64_t chunks = 1;
};

std::string name_of(const Case& c, const comm::WorkerGrid& grid) {
  return fmt::format("{}, {}, shuffle {}, {} micro-steps, {} chunks, {}", c.router, c.precision,
                     c.shuffle, c.micro_steps, c.chunks, test::name_of(grid));
}

config::Config config_of(const Case& c) {
  config::Config config;
  config.model = {.vocabulary = 24, .width = 32, .layers = 2, .heads = 4, .context = 16};
  config.training.batch = 8 * c.micro_steps;
  config.training.micro_steps = c.micro_steps;
  config.training.steps = 40;
  config.training.log_every = 5;
  config.training.shard_optimizer = c.shard_optimizer;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  if (c.router == "dense") return config;
  config.experts.layers = 1;
  config.experts.count = 8;
  config.experts.groups = 8;
  config.experts.shuffle = c.shuffle;
  config.experts.chunks = c.chunks;
  if (c.router != "base") {
    config.experts.router = c.router;
    config.experts.placement = config::Placement::kReplace;
    config.experts.second_expert = config::SecondExpert::kRandom;
  }
  return config;
}

std::vector<batches::WeightedSource> source() { return test::small_source(); }

model::ComputePlace place_of(const std::string& precision) {
  if (test::device().is_cpu()) return test::kDouble;
  return model::choose_place({.device = config::DeviceChoice::kCuda,
                              .precision = config::choice_of<config::Precision>(precision),
                              .deterministic = true,
                              .on_machine = test::place_on_machine()});
}

// Asked of how they were started, not of what is tested.
bool are_recorded() { return test::device().is_cuda() && test::stay_on_gpus(); }

void expect_same_steps(const Case& c, const comm::WorkerGrid& grid) {
  SCOPED_TRACE(name_of(c, grid));
  const model::ComputePlace place = place_of(c.precision);
  config::Config config = config_of(c);
  Trainer recorded(config, place, source(), grid);
  config.training.graph = false;
  Trainer plain(config, place, source(), grid);
  test::expect_same_steps(recorded, plain, are_recorded() ? 11 : 2);  // replays of both kinds
  EXPECT_EQ(recorded.why_plain().empty(), are_recorded()) << recorded.why_plain();
}

TEST(StepGraphsOfWorkers, ReplaysOfADenseModelAreTheStepsComputedPlainly) {
  expect_same_steps({.router = "dense", .precision = "bf16", .micro_steps = 2}, everyone());
  expect_same_steps({.router = "dense", .precision = "fp64"}, everyone());
}

TEST(StepGraphsOfWorkers, ReplaysOfABaseModelAreTheStepsComputedPlainly) {
  expect_same_steps({.router = "base", .precision = "bf16", .micro_steps = 2}, everyone());
  expect_same_steps({.router = "base", .precision = "fp64", .shuffle = false}, everyone());
}

TEST(StepGraphsOfWorkers, ReplaysOfGatesAreTheStepsComputedPlainly) {
  expect_same_steps({.router = "switch", .precision = "bf16"}, everyone());
  expect_same_steps({.router = "sparsely_gated", .precision = "fp32"}, everyone());
}

TEST(StepGraphsOfWorkers, ReplaysOfDividedModelsAreTheStepsComputedPlainly) {
  for (const comm::WorkerGrid& grid : test::divisions()) {
    if (grid.num_shards() == 1) continue;
    expect_same_steps({.router = "dense", .precision = "bf16"}, grid);
    expect_same_steps({.router = "base", .precision = "fp32"}, grid);
  }
}

TEST(StepGraphsOfWorkers, ReplaysWithDividedStateAreTheStepsComputedPlainly) {
  expect_same_steps({.router = "dense", .micro_steps = 2, .shard_optimizer = true}, everyone());
  expect_same_steps({.router = "base", .precision = "fp64", .shard_optimizer = true}, everyone());
}

// Of 2 workers each sends 8 rows to every expert, of 4 four: three chunks differ in size, and five
// are cut to four.
TEST(StepGraphsOfWorkers, ReplaysInChunksAreTheStepsComputedPlainly) {
  expect_same_steps({.router = "base", .precision = "bf16", .micro_steps = 2, .chunks = 2},
                    everyone());
  expect_same_steps({.router = "base", .precision = "fp64", .shuffle = false, .chunks = 5},
                    everyone());
  expect_same_steps({.router = "sparsely_gated", .precision = "fp32", .chunks = 3}, everyone());
  expect_same_steps({.router = "base", .shard_optimizer = true, .chunks = 3}, everyone());
  for (const comm::WorkerGrid& grid : test::divisions()) {
    if (grid.num_shards() > 1) expect_same_steps({.router = "base", .chunks = 2}, grid);
  }
}

// Sums of gradients are rounded in another order, as in TrainerOfWorkers.
TEST(StepGraphsOfWorkers, InChunksLearnWhatTheyLearnWithoutThem) {
  const model::ComputePlace place = place_of("fp64");
  const int64_t steps = are_recorded() ? 11 : 3;
  for (const char* router : {"base", "sparsely_gated"}) {
    config::Config config = config_of({.router = router});
    config.training.graph = false;
    Trainer once(config, place, source(), everyone());
    const std::vector<double> expected = test::losses(once, steps);
    for (const int64_t chunks : {2, 3, 5}) {
      for (const bool graph : {false, true}) {
        if (graph && !are_recorded()) continue;  // the same once more
        SCOPED_TRACE(fmt::format("{}, {} chunks, graph {}", router, chunks, graph));
        config.experts.chunks = chunks;
        config.training.graph = graph;
        Trainer parts(config, place, source(), everyone());
        EXPECT_LE(test::largest_difference(test::losses(parts, steps), expected), 1e-9);
        EXPECT_EQ(parts.why_plain().empty(), graph) << parts.why_plain();
      }
    }
  }
}

TEST(StepGraphsOfWorkers, TellWhyTheyComputePlainly) {
  const model::ComputePlace place = place_of("bf16");
  config::Config config = config_of({.router = "switch"});
  const std::string usual = Trainer(config, place, source(), everyone()).why_plain();
  config.experts.capacity = 0;
  const std::string uncounted = Trainer(config, place, source(), everyone()).why_plain();
  if (test::device().is_cpu()) {
    EXPECT_THAT(usual, HasSubstr("for GPUs"));
  } else if (!everyone().can_record()) {
    EXPECT_THAT(usual, HasSubstr("host memory"));
  } else {
    EXPECT_EQ(usual, "");
    EXPECT_THAT(uncounted, HasSubstr("without a capacity"));
  }
  EXPECT_NE(uncounted, "");
}

// Between the first part of a step and the end of its last, also with exchanges.
TEST(StepGraphsOfWorkers, ComputeWithoutWaitingForTheGpu) {
  if (!are_recorded()) return;  // the host has its part in exchanges
  const std::vector<Case> cases{{.router = "dense"},
                                {.router = "base"},
                                {.router = "base", .chunks = 3},
                                {.router = "switch"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(name_of(c, everyone()));
    Trainer trainer(config_of(c), place_of("bf16"), source(), everyone());
    for (int64_t step = 0; step < 3; ++step) trainer.step();
    const test::HostWaits found = test::host_waits(trainer);
    EXPECT_THAT(found.waits, IsEmpty());
    EXPECT_GT(found.launches, 50) << "the profiler saw the step";
  }
}

// One worker that cannot record is enough: none replays what another computes plainly.
TEST(StepGraphsOfWorkers, AllComputePlainlyWhenOneCannotRecord) {
  comm::Communicator& all = everyone();
  StepGraphs graphs(are_recorded() ? "" : "it is not tried", all);
  step::StepInputs inputs(test::device());
  const Tensor x = at::ones({8}, at::TensorOptions(test::device()).dtype(at::kDouble));
  const int culprit = all.size() - 1;
  int64_t calls = 0;
  const auto compute = [&]() -> StepSums {
    x.fill_(all.rank() + 1);
    all.all_reduce(x, comm::Reduction::kSum, {"test"});
    if (++calls == 4 && are_recorded() && all.rank() == culprit)
      throw std::runtime_error("no graph today");
    return {x, {}, {}};
  };
  const double expected = 0.5 * all.size() * (all.size() + 1);
  for (uint64_t step = 0; step < 6; ++step) {
    const StepSums& sums = graphs.run(StepKind::kUsual, step, inputs, compute);
    EXPECT_TRUE(sums.sums.eq(expected).all().item<bool>()) << "step " << step;
  }
  EXPECT_NE(graphs.reason(), "");
  if (are_recorded()) {
    EXPECT_EQ(graphs.reason(), all.size() == 1 ? "no graph today"
                                               : fmt::format("worker {}: no graph today", culprit));
  }
}

}  // namespace
}  // namespace ballast::training
