// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <filesystem>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "ballast/training/schedule.h"
#include "tests/support/lone_worker.h"
#include "tests/training/counting_runs.h"
#include "tests/training/paired_runs.h"
#include "tests/training/plain_update.h"

namespace ballast::training {
namespace {

using config::Config;
using test::counting_source;
using test::kDouble;
using test::losses;

std::vector<batches::WeightedSource> random_source(int64_t tokens, int64_t vocabulary) {
  RandomStream random(3, "test tokens");
  std::vector<int64_t> ids(static_cast<size_t>(tokens));
  for (int64_t& id : ids)
    id = static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary)));
  return {{tokens::tokens_in_memory(std::move(ids), {.name = "test", .format = "memory"}), 1.0}};
}

Config tiny() {
  Config config;
  config.model = {.vocabulary = 20, .width = 32, .layers = 2, .heads = 2, .context = 16};
  config.training.batch = 4;
  config.training.steps = 30;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  return config;
}

TEST(Optimizer, OverfitsOneBatch) {
  const Config config = tiny();
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, test::lone_worker());
  table.allocate({});
  table.initialize(1);
  Optimizer optimizer(table, config.optimizer);
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(0, 20, {4, 16}, at::kLong),
                   targets = at::randint(0, 20, {64}, at::kLong);
  double loss = 0;
  for (int64_t step = 1; step <= 150; ++step) {
    const at::Tensor hidden = model.forward(tokens, {});
    const auto result =
        kernels::next_token_losses_and_gradient(hidden, model.token_embedding(), targets, 1.0 / 64);
    torch::autograd::backward({hidden}, {result.gradient});
    test::update_weights(optimizer, config.optimizer, step, 1e-2);
    loss = result.losses.mean().item<double>();
  }
  EXPECT_LT(loss, 0.05);
}

// The same sequences and groups in one micro-step or in two: the balance loss is a mean over both.
TEST(Trainer, TheBalanceLossOfGatesDoesNotDependOnMicroSteps) {
  const auto gradient_in = [](int64_t micro_steps, double balance_weight) {
    Config config = tiny();
    config.experts.layers = 1;
    config.experts.placement = config::Placement::kReplace;
    config.experts.router = "sparsely_gated";
    config.experts.balance_weight = balance_weight;
    config.experts.groups = 4 / micro_steps;
    config.training.micro_steps = micro_steps;
    Trainer trainer(config, {.working = at::kDouble, .master = at::kDouble}, random_source(500, 20),
                    test::lone_worker());
    trainer.step();
    return trainer.table().first_moment().clone();  // a tenth of the gradient, clipped
  };
  const at::Tensor together = gradient_in(1, 10), apart = gradient_in(2, 10);
  EXPECT_LE((together - apart).abs().max().item<double>(), 1e-12);
  EXPECT_GT((together - gradient_in(1, 0)).abs().max().item<double>(), 1e-4) << "it matters";
}

TEST(Trainer, Learns) {
  Trainer trainer(tiny(), {}, test::counting_source(500, 20), test::lone_worker());
  const auto all = losses(trainer, 30);
  EXPECT_LT(all.back(), all.front() - 1);
}

TEST(Trainer, MicroStepsGiveTheSameStep) {
  Config whole = tiny(), parts = tiny();
  parts.training.micro_steps = 4;
  const model::ComputePlace exact{.working = at::kDouble, .master = at::kDouble};
  Trainer a(whole, exact, random_source(5000, 20), test::lone_worker()),
      b(parts, exact, random_source(5000, 20), test::lone_worker());
  const auto expected = losses(a, 10), got = losses(b, 10);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
}

// A GPU's steps do the same while it computes (StepGraphsCuda).
TEST(Trainer, DoesOtherThingsInTheTimeOfAStepOnce) {
  Trainer trainer(tiny(), {}, random_source(5000, 20), test::lone_worker());
  std::vector<int64_t> seen;
  const auto look = [&] { seen.push_back(trainer.state().step); };
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(trainer.step(nullptr, look).step, i + 1);
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2)) << "the steps done by then";
}

TEST(Trainer, ResumedRunIsBitIdentical) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "trainer_resume_test";
  std::filesystem::remove_all(folder);
  const Config config = tiny();
  Trainer straight(config, {}, random_source(5000, 20), test::lone_worker()),
      first(config, {}, random_source(5000, 20), test::lone_worker()),
      second(config, {}, random_source(5000, 20), test::lone_worker());
  const auto expected = losses(straight, 30);
  losses(first, 13);
  const auto path = save_training(folder, {config, first.model(), first.table(), first.state()},
                                  test::lone_worker());
  second.resume(checkpoint::Checkpoint(path));
  EXPECT_EQ(second.state().step, 13);
  const auto rest = losses(second, 17);
  EXPECT_THAT(rest, ::testing::ElementsAreArray(expected.begin() + 13, expected.end()));
  EXPECT_TRUE(at::equal(straight.table().master(), second.table().master()));
  EXPECT_TRUE(at::equal(straight.table().second_moment(), second.table().second_moment()));
  std::filesystem::remove_all(folder);
}

TEST(Trainer, ResumesThePricesAndWhatTheSolverStartsFrom) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "trainer_prices_test";
  std::filesystem::remove_all(folder);
  const Config config = test::small_config("base", 2);
  Trainer first(config, {}, test::small_source(), test::lone_worker()),
      second(config, {}, test::small_source(), test::lone_worker());
  losses(first, 12);
  second.resume(checkpoint::Checkpoint(save_training(
      folder, {config, first.model(), first.table(), first.state()}, test::lone_worker())));
  for (size_t i = 0; i < first.model().expert_layers().size(); ++i) {
    const auto prices = [&](const Trainer& t) -> const experts::PriceAverage& {
      return *t.model().expert_layers()[i]->router().prices();
    };
    EXPECT_TRUE(at::equal(prices(second).value(), prices(first).value()));
    EXPECT_TRUE(at::equal(prices(second).start(), prices(first).start()));
    EXPECT_FALSE(at::equal(prices(first).value(), prices(first).start())) << "one is quicker";
  }
  std::filesystem::remove_all(folder);
}

TEST(Trainer, RefusesACheckpointOfAnotherShape) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "trainer_shape_test";
  std::filesystem::remove_all(folder);
  Config config = tiny();
  Trainer small(config, {}, random_source(5000, 20), test::lone_worker());
  const auto path = save_training(folder, {config, small.model(), small.table(), small.state()},
                                  test::lone_worker());
  config.model.width = 64;
  Trainer large(config, {}, random_source(5000, 20), test::lone_worker());
  EXPECT_THROW(large.resume(checkpoint::Checkpoint(path)), UserError);
  config.model.width = 32;
  config.model.layers = 3;
  Trainer deep(config, {}, random_source(5000, 20), test::lone_worker());
  EXPECT_THROW(deep.resume(checkpoint::Checkpoint(path)), UserError);
  std::filesystem::remove_all(folder);
}

TEST(Trainer, AStepThatIsNotFiniteMovesNothing) {
  Config config = tiny();
  Trainer trainer(config, {}, random_source(5000, 20), test::lone_worker());
  losses(trainer, 3);
  const at::Tensor moments = trainer.table().second_moment().clone();
  trainer.table()
      .view(trainer.table().working(), trainer.table().segment("output_norm.weight"))
      .fill_(INFINITY);
  const at::Tensor weights = trainer.table().working().clone();
  const StepStats stats = trainer.step();
  EXPECT_NE(stats.skipped, "");
  EXPECT_EQ(trainer.state().step, 4) << "the batch is behind us";
  EXPECT_EQ(trainer.state().updates, 3);
  EXPECT_TRUE(at::equal(trainer.table().working(), weights));
  EXPECT_TRUE(at::equal(trainer.table().second_moment(), moments));
}

// All affinities are NaN then: the step is skipped, as any other.
TEST(Trainer, ABaseModelThatDivergedSkipsTheStep) {
  Config config = tiny();
  config.experts.layers = 1;
  config.experts.sublayers = 1;
  config.experts.groups = 2;
  Trainer trainer(config, {}, random_source(5000, 20), test::lone_worker());
  losses(trainer, 2);
  trainer.table()
      .view(trainer.table().working(), trainer.table().segment("block.0.attention.norm.weight"))
      .fill_(NAN);
  EXPECT_NE(trainer.step().skipped, "");
}

TEST(Trainer, FrozenParametersStayAsTheyAre) {
  parameters::ParameterTable table;
  table.declare({.name = "frozen",
                 .shape = {4},
                 .initialization = parameters::Initialization::one(),
                 .decay = true,
                 .frozen = true});
  const kernels::Parameter& free =
      table.declare({.name = "free",
                     .shape = {4},
                     .initialization = parameters::Initialization::one(),
                     .decay = true});
  table.allocate({});
  table.initialize(1);
  config::OptimizerConfig config;
  config.weight_decay = 0.5;
  Optimizer optimizer(table, config);
  free.gradient.fill_(1);
  test::update_weights(optimizer, config, 1, 0.1);
  EXPECT_EQ(table.view(table.master(), table.segment("frozen")).sum().item<float>(), 4);
  EXPECT_LT(free.value.sum().item<float>(), 4);
}

// On a GPU: bf16 with fp32 master weights learns, and with deterministic kernels a resumed run is
// the same to the bit.
TEST(TrainerCuda, LearnsInBf16AndResumesToTheBit) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "trainer_cuda_test";
  std::filesystem::remove_all(folder);
  const Config config = tiny();
  const model::ComputePlace place =
      model::choose_place({.device = config::DeviceChoice::kCuda, .deterministic = true});
  ASSERT_EQ(place.working, at::kBFloat16);
  Trainer straight(config, place, test::counting_source(500, 20), test::lone_worker()),
      first(config, place, test::counting_source(500, 20), test::lone_worker()),
      second(config, place, test::counting_source(500, 20), test::lone_worker());
  const auto expected = losses(straight, 30);
  EXPECT_LT(expected.back(), expected.front() - 1);
  losses(first, 13);
  second.resume(checkpoint::Checkpoint(save_training(
      folder, {config, first.model(), first.table(), first.state()}, test::lone_worker())));
  EXPECT_THAT(losses(second, 17),
              ::testing::ElementsAreArray(expected.begin() + 13, expected.end()));
  EXPECT_TRUE(at::equal(straight.table().master(), second.table().master()));
  std::filesystem::remove_all(folder);
}

TEST(StepGuard, SkipsWhatIsNotFiniteAndStopsAfterTooMany) {
  config::TrainingConfig config;
  config.max_skipped = 3;
  StepGuard guard(config);
  EXPECT_EQ(guard.judge(1.0, 2.0), "");
  EXPECT_THAT(guard.judge(NAN, 2.0), ::testing::HasSubstr("loss"));
  EXPECT_THAT(guard.judge(1.0, INFINITY), ::testing::HasSubstr("norm"));
  EXPECT_EQ(guard.judge(1.0, 2.0), "");
  EXPECT_EQ(guard.skipped, 2);
  guard.judge(NAN, 1);
  guard.judge(NAN, 1);
  EXPECT_THROW(guard.judge(NAN, 1), UserError);
}

TEST(StepGuard, SkipsSpikesOnceItKnowsWhatIsUsual) {
  config::TrainingConfig config;
  config.spike_factor = 4;
  StepGuard guard(config);
  EXPECT_EQ(guard.judge(1, 1000), "") << "nothing is known yet";
  for (size_t i = 1; i < StepGuard::kRecentNorms; ++i) EXPECT_EQ(guard.judge(1, 1.0), "");
  EXPECT_EQ(guard.judge(1, 3.9), "");
  EXPECT_THAT(guard.judge(1, 4.1), ::testing::HasSubstr("median"));
  EXPECT_EQ(guard.skipped, 1);
}

TEST(Schedule, WarmsUpThenDecaysToTheEnd) {
  config::OptimizerConfig config;
  config.learning_rate = 1;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate_at(0, 14, config), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(3, 14, config), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(4, 14, config), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(9, 14, config), 0.5);
  EXPECT_NEAR(learning_rate_at(13, 14, config), 0.1, 1e-12);
  config.final_learning_rate = 0.2;
  EXPECT_NEAR(learning_rate_at(14, 14, config), 0.2, 1e-12);
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate_at(0, 14, config), 1);
}

}  // namespace
}  // namespace ballast::training
