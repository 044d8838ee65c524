// SPDX-License-Identifier: Apache-2.0
// Muon, the average of weights and frozen parameters in whole runs.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ballast/kernels/newton_schulz.h"
#include "ballast/model/update_counts.h"
#include "ballast/system/error.h"
#include "ballast/training/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/lone_worker.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"
#include "tests/training/paired_runs.h"

namespace ballast::training {
namespace {

using at::Tensor;
using config::Config;
using parameters::Update;
using test::kDouble;
using test::lone_worker;
using test::losses;
using test::small_source;

Config muon_config(const std::string& router = "base") {
  Config config = test::small_config(router, 2);
  config.experts.sublayers = 2;
  config.optimizer.algorithm = config::Algorithm::kMuon;
  config.optimizer.weight_decay = 0.01;
  return config;
}

Tensor weights_of(const Trainer& trainer, const std::string& name) {
  return trainer.table().view(trainer.table().master(), trainer.table().segment(name));
}

TEST(MuonTrainer, Learns) {
  Config config = muon_config();
  config.optimizer.matrix_rate = 3;
  Trainer trainer(config, {}, small_source(), lone_worker());
  const auto all = losses(trainer, 40);
  EXPECT_LT(all.back(), all.front() - 0.5);
}

// After one step without clipping the momentum is a multiple of the gradient, so the update is its
// orthogonalised form: of queries, keys and values each, and of each expert.
TEST(MuonTrainer, MovesEachMatrixAlongItsOrthogonalisedGradient) {
  Config config = muon_config();
  config.optimizer.clip_norm = 0;
  config.optimizer.weight_decay = 0;
  config.optimizer.warmup_steps = 0;
  config.optimizer.matrix_rate = 3;
  Trainer trainer(config, kDouble, small_source(), lone_worker());
  const Tensor before = trainer.table().master().clone();
  trainer.step();
  const parameters::ParameterTable& table = trainer.table();
  int64_t matrices = 0;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.update != Update::kMuon) continue;
    const auto part = [&](const Tensor& flat, int64_t first, int64_t rows) {
      return table.view(flat, segment).narrow(0, first, rows);
    };
    int64_t first = 0;
    for (const int64_t rows :
         segment.matrices.empty() ? std::vector{segment.shape[0]} : segment.matrices) {
      const Tensor momentum = part(table.first_moment(), first, rows);
      const Tensor moved = part(before, first, rows) - part(table.master(), first, rows);
      const double size = 0.2 * std::sqrt(double(std::max(rows, segment.shape[1])));
      const Tensor expected =
          1e-2 * 3 * size * kernels::orthogonalised(momentum.unsqueeze(0)).squeeze(0);
      EXPECT_LE((moved - expected).abs().max().item<double>(), 1e-12) << segment.name;
      // Fresh experts end in zeros: what is before has no gradient yet.
      const bool is_before_zeros =
          segment.owner == parameters::Owner::kExpert && segment.name.ends_with("up.weight");
      EXPECT_EQ(momentum.abs().max().item<double>() > 0, !is_before_zeros) << segment.name;
      first += rows;
      ++matrices;
    }
  }
  // 4 blocks of q, k, v, out, up, down; 2 layers of 4 experts with 2 sublayers of up, down.
  EXPECT_EQ(matrices, 4 * 6 + 2 * 4 * 2 * 2);
}

// The gate of swiglu and its partner lie in one tensor. A projection of twice as many rows as
// columns is one matrix all the same.
TEST(MuonTrainer, KnowsTheMatricesOfGatedExperts) {
  Config config = muon_config();
  config.model.activation = config::Activation::kSwiglu;
  config.experts.hidden = 16;
  config.experts.shared = 1;
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, lone_worker());
  const int64_t f = config.model.feed_forward_width();
  int64_t seen = 0;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.name.ends_with("down.weight")) {
      EXPECT_LE(segment.matrices.size(), 1U) << segment.name;
    }
    if (!segment.name.ends_with("up.weight")) continue;
    const int64_t each = segment.name.starts_with("block.") ? f : 16;
    EXPECT_EQ(segment.matrices, (std::vector{each, each})) << segment.name;
    ++seen;
  }
  EXPECT_EQ(seen, 4 + 2 * 2 * (4 + 1));
}

TEST(MuonTrainer, ResumedRunIsBitIdentical) {
  for (const char* router : {"dense", "base", "sparsely_gated"}) {
    SCOPED_TRACE(router);
    const test::TemporaryFolder folder;
    Config config = muon_config(router);
    config.optimizer.average = 0.8;
    config.optimizer.schedule = config::Schedule::kStable;
    config.training.freeze = {"block.1.*"};
    Trainer straight(config, {}, small_source(), lone_worker()),
        first(config, {}, small_source(), lone_worker()),
        second(config, {}, small_source(), lone_worker());
    losses(straight, 13);
    losses(first, 13);
    second.resume(checkpoint::Checkpoint(save_training(
        folder.path(), {config, first.model(), first.table(), first.state()}, lone_worker())));
    EXPECT_TRUE(at::equal(straight.table().average(), second.table().average()));
    test::expect_same_steps(second, straight, 10);
    EXPECT_TRUE(at::equal(straight.table().average(), second.table().average()));
  }
}

TEST(MuonTrainer, ItsCheckpointsHoldNoSecondMomentsOfMatrices) {
  const test::TemporaryFolder folder;
  Config config = muon_config();
  config.training.freeze = {"block.0.*"};
  Trainer trainer(config, {}, small_source(), lone_worker());
  losses(trainer, 2);
  const checkpoint::Checkpoint saved(save_training(
      folder.path(), {config, trainer.model(), trainer.table(), trainer.state()}, lone_worker()));
  const auto has = [&](const std::string& prefix, const std::string& name) {
    return saved.has(prefix + "/" + name);
  };
  const std::string matrix = "block.1.attention.qkv.weight",
                    expert = "layer.1.expert.2.sublayer.0.up.weight";
  for (const std::string& name : {matrix, expert}) {
    EXPECT_TRUE(has("muon.momentum", name));
    EXPECT_FALSE(has("adam.first", name));
    EXPECT_FALSE(has("adam.second", name));
  }
  EXPECT_TRUE(has("adam.second", "token_embedding"));
  EXPECT_FALSE(has("muon.momentum", "token_embedding"));
  for (const char* prefix : {"muon.momentum", "adam.first", "adam.second"}) {
    EXPECT_FALSE(has(prefix, "block.0.attention.qkv.weight")) << prefix;
    EXPECT_FALSE(has(prefix, "block.0.attention.norm.weight")) << prefix;
  }
  EXPECT_TRUE(saved.has("block.0.attention.qkv.weight"));
}

TEST(MuonTrainer, AStepThatIsNotFiniteMovesNothing) {
  Config config = muon_config();
  config.optimizer.average = 0.9;
  Trainer trainer(config, {}, small_source(), lone_worker());
  losses(trainer, 3);
  weights_of(trainer, "output_norm.weight").fill_(INFINITY);
  const parameters::ParameterTable& table = trainer.table();
  const Tensor weights = table.master().clone(), moments = table.first_moment().clone(),
               average = table.average().clone();
  EXPECT_NE(trainer.step().skipped, "");
  EXPECT_TRUE(at::equal(table.master(), weights));
  EXPECT_TRUE(at::equal(table.first_moment(), moments));
  EXPECT_TRUE(at::equal(table.average(), average));
  EXPECT_EQ(table.gradient().abs().max().item<float>(), 0);
}

TEST(WeightAverage, IsPlainAtFirstAndThenExponential) {
  Config config = test::small_config("dense", 1);
  config.optimizer.average = 0.75;
  Trainer trainer(config, kDouble, small_source(), lone_worker());
  EXPECT_TRUE(at::equal(trainer.table().average(), trainer.table().master()));
  Tensor expected;
  for (int64_t update = 1; update <= 8; ++update) {
    trainer.step();
    const Tensor& weights = trainer.table().master();
    const double share = update < 4 ? 1.0 / double(update) : 0.25;
    expected = update == 1 ? weights.clone() : (1 - share) * expected + share * weights;
    EXPECT_LE((trainer.table().average() - expected).abs().max().item<double>(), 1e-14) << update;
  }
}

TEST(WeightAverage, LeavesTheRunAsItIs) {
  Config with = test::small_config("base", 2), without = with;
  with.optimizer.average = 0.99;
  Trainer a(with, {}, small_source(), lone_worker()), b(without, {}, small_source(), lone_worker());
  test::expect_same_steps(a, b, 6);
}

TEST(Freeze, FrozenParametersStayToTheBitAndTheOthersLearn) {
  for (const char* router : {"dense", "base", "switch"}) {
    SCOPED_TRACE(router);
    Config config = test::small_config(router, 2);
    config.optimizer.weight_decay = 0.1;
    config.training.freeze = {"position_embedding", "block.1.*", "*.attention.out.*"};
    Trainer trainer(config, {}, small_source(), lone_worker());
    const Tensor before = trainer.table().master().clone();
    const auto all = losses(trainer, 20);
    EXPECT_LT(all.back(), all.front() - 0.1);
    for (const parameters::Segment& segment : trainer.table().segments()) {
      const bool is_frozen = segment.name == "position_embedding" ||
                             segment.name.starts_with("block.1.") ||
                             segment.name.find(".attention.out.") != std::string::npos;
      EXPECT_EQ(segment.frozen, is_frozen) << segment.name;
      EXPECT_EQ(at::equal(trainer.table().view(before, segment),
                          trainer.table().view(trainer.table().master(), segment)),
                is_frozen)
          << segment.name;
    }
  }
}

// The gradient of what is trained does not know of the rest: it is that of a model in which nothing
// is frozen, to the bit.
TEST(Freeze, TheOthersHaveTheSameGradient) {
  for (const char* router : {"dense", "base", "sparsely_gated"}) {
    SCOPED_TRACE(router);
    Config free = test::small_config(router, 2);
    free.optimizer.clip_norm = 0;  // the norm is another
    Config frozen = free;
    frozen.training.freeze = {"*_embedding", "block.2.*", "*.norm.*", "*.up.*"};
    Trainer a(free, kDouble, small_source(), lone_worker()),
        b(frozen, kDouble, small_source(), lone_worker());
    EXPECT_EQ(a.step().loss, b.step().loss);
    int64_t compared = 0;
    for (const parameters::Segment& segment : b.table().segments()) {
      if (segment.frozen) continue;
      EXPECT_TRUE(
          at::equal(b.table().view(b.table().first_moment(), segment),
                    a.table().view(a.table().first_moment(), a.table().segment(segment.name))))
          << segment.name;
      ++compared;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST(Freeze, CountsWhatIsTrained) {
  Config config = muon_config();
  const model::ModelUpdates all = model::count_updates(config);
  Trainer trainer(config, {}, small_source(), lone_worker());
  EXPECT_EQ(all.trained(), trainer.table().num_parameters());
  EXPECT_EQ(all.shared.frozen + all.experts.frozen, 0);
  const int64_t d = 32, f = 128;
  EXPECT_EQ(all.shared.muon, 4 * (4 * d * d + 2 * d * f));
  EXPECT_EQ(all.experts.muon, 2 * 4 * 2 * 2 * d * f);
  // docs/optimizers.md: 5 (4 n^2 l + 2 n^3) for a matrix with sides n <= l.
  const double square = 5.0 * 6 * d * d * d, wide = 5.0 * (4 * d * d * f + 2 * d * d * d);
  EXPECT_DOUBLE_EQ(all.shared.muon_products, 4 * (4 * square + 2 * wide));
  EXPECT_DOUBLE_EQ(all.experts.muon_products, 2 * 4 * 2 * 2 * wide);
  config.training.freeze = {"layer.*.expert.*"};
  EXPECT_EQ(model::count_updates(config).trained(), all.shared.trained());
}

TEST(Freeze, NamesOfNothingAreRefusedWithTheNearest) {
  const auto error = [](std::vector<std::string> patterns) {
    Config config = test::small_config("base", 2);
    config.training.freeze = std::move(patterns);
    return test::error_of([&] { model::count_updates(config); });
  };
  EXPECT_THAT(error({"block.*", "token_embeding"}),
              ::testing::AllOf(::testing::HasSubstr("training.freeze"),
                               ::testing::HasSubstr("\"token_embeding\""),
                               ::testing::HasSubstr("\"token_embedding\"")));
  EXPECT_THAT(error({"layer.1.expert.2.*"}), ::testing::HasSubstr("frozen together"));
  EXPECT_THAT(error({"*"}), ::testing::HasSubstr("none is left"));
  EXPECT_EQ(error({"block.*"}), "no error");
}

}  // namespace
}  // namespace ballast::training
