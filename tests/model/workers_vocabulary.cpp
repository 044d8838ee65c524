// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see tests/training/workers_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/model/vocabulary.h"
#include "tests/comm/divisions.h"

namespace ballast::model {
namespace {

using at::Tensor;

struct LossCase {
  at::ScalarType dtype;
  double bound;  // relative to the largest element
};

// Against the kernels of a whole vocabulary, in several chunks of rows.
TEST(DividedVocabulary, HasTheLossAndTheGradientsOfTheWholeOne) {
  config::ModelConfig config{.vocabulary = 20'003, .width = 5};
  const int64_t rows = 150;
  at::manual_seed(3);
  Tensor targets = at::randint(0, config.vocabulary, {rows}, at::kLong);
  targets[3] = -100;
  targets[rows - 1] = -1;
  targets[5] = config.vocabulary - 1;
  const Tensor values = at::randn({config.vocabulary, config.width}, at::kDouble);
  const Tensor states = at::randn({rows, config.width}, at::kDouble) * 4;
  for (const auto& [dtype, bound] : {LossCase{at::kDouble, 1e-13}, LossCase{at::kFloat, 1e-5}}) {
    const Tensor hidden = states.to(dtype);
    const kernels::Parameter whole{values.to(dtype), at::ones_like(values, dtype)};
    const auto expected = kernels::next_token_losses_and_gradient(hidden, whole, targets, 0.25);
    for (const comm::WorkerGrid& grid : test::divisions()) {
      SCOPED_TRACE(test::name_of(grid));
      parameters::ParameterTable table;
      const Vocabulary vocabulary(config, table, grid.shards());
      table.allocate({.working = dtype, .master = dtype});
      const parameters::Segment& segment = table.segment("token_embedding");
      const auto part = [&](const Tensor& of) {
        return segment.slice ? segment.slice->take(of) : of;
      };
      table.view(table.master(), segment).copy_(part(whole.value));
      table.gradient().fill_(1);
      const auto expect_close = [&](const Tensor& got, const Tensor& want, const char* what) {
        const double scale = want.abs().max().item<double>();
        EXPECT_LE((got - want).abs().max().item<double>(), bound * scale) << what;
      };
      const auto got = vocabulary.losses_and_gradient(hidden, targets, 0.25);
      EXPECT_EQ(got.losses.scalar_type(), dtype);
      expect_close(got.losses, expected.losses, "losses");
      expect_close(got.gradient, expected.gradient, "gradient of the states");
      expect_close(vocabulary.embedding().gradient, part(whole.gradient), "of the embedding");
      expect_close(vocabulary.losses(hidden, targets), expected.losses, "losses alone");
      EXPECT_TRUE(got.losses[3].item<double>() == 0 &&
                  got.gradient[3].abs().max().item<double>() == 0);
      expect_close(vocabulary.logits(hidden), at::mm(hidden, whole.value.t()), "logits");
      const Tensor losses = got.losses.clone();
      grid.shards().broadcast(losses, 0, {"test"});
      EXPECT_TRUE(at::equal(losses, got.losses)) << "the same bits on all shards";
    }
  }
}

TEST(DividedVocabulary, SurvivesHugeLogits) {
  const Tensor all = at::zeros({8, 2}, at::kDouble);
  all.select(1, 0).copy_(at::tensor({1e4, -1e4, 0.0, 0.0, 0.0, 0.0, 0.0, 1e4}, at::kDouble));
  for (const comm::WorkerGrid& grid : test::divisions()) {
    parameters::ParameterTable table;
    const Vocabulary vocabulary({.vocabulary = 8, .width = 2}, table, grid.shards());
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    const parameters::Segment& segment = table.segment("token_embedding");
    table.view(table.master(), segment).copy_(segment.slice ? segment.slice->take(all) : all);
    const auto got = vocabulary.losses_and_gradient(at::ones({2, 2}, at::kDouble),
                                                    at::tensor({0, 2}, at::kLong), 1.0);
    EXPECT_NEAR(got.losses[0].item<double>(), std::log(2.0), 1e-12);
    EXPECT_NEAR(got.losses[1].item<double>(), 1e4 + std::log(2.0), 1e-9);
  }
}

TEST(DividedVocabulary, AnIgnoredTargetHasNoGradientWhateverItsLogits) {
  const Tensor hidden = at::ones({3, 2}, at::kDouble), targets = at::tensor({1, -1, 6}, at::kLong);
  hidden[1] = 1e300;  // finite, and the logits of 1e10 times that are not
  for (const comm::WorkerGrid& grid : test::divisions()) {
    SCOPED_TRACE(test::name_of(grid));
    parameters::ParameterTable table;
    const Vocabulary vocabulary({.vocabulary = 8, .width = 2}, table, grid.shards());
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.master().fill_(1e10);
    const auto got = vocabulary.losses_and_gradient(hidden, targets, 1.0);
    EXPECT_EQ(got.losses[1].item<double>(), 0);
    EXPECT_EQ(got.gradient[1].abs().max().item<double>(), 0);
    EXPECT_TRUE(table.gradient().isfinite().all().item<bool>());
    EXPECT_GT(table.gradient().abs().max().item<double>(), 0);
  }
}

TEST(DividedVocabulary, RefusesTargetsOutsideOfIt) {
  for (const comm::WorkerGrid& grid : test::divisions()) {
    parameters::ParameterTable table;
    const Vocabulary vocabulary({.vocabulary = 11, .width = 2}, table, grid.shards());
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    EXPECT_THROW(vocabulary.losses(at::zeros({1, 2}, at::kDouble), at::tensor({11}, at::kLong)),
                 c10::Error);
  }
}

}  // namespace
}  // namespace ballast::model
