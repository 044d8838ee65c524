// SPDX-License-Identifier: Apache-2.0
// Models of all of the decoder's parts: gradients, the cache, sizes.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "ballast/model/language_model.h"
#include "ballast/model/model_size.h"
#include "ballast/model/rope.h"
#include "tests/support/decoder_variants.h"
#include "tests/support/gradient_check.h"
#include "tests/support/lone_worker.h"

namespace ballast::model {
namespace {

using at::Tensor;

constexpr int64_t kVocabulary = 11, kContext = 8;

config::Config small(const std::function<void(config::Config&)>& change) {
  config::Config config;
  config.model = {.vocabulary = kVocabulary,
                  .width = 16,
                  .layers = 2,
                  .heads = 4,
                  .hidden = 12,
                  .context = kContext};
  change(config);
  config.experts.groups = config.experts.layers > 0 ? 1 : 0;
  config::check_config(config);
  return config;
}

struct DoubleModel {
  explicit DoubleModel(const config::Config& config) : model(config, table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(1);
    at::manual_seed(2);
    table.master().add_(at::randn_like(table.master()) * 0.3);  // away from zeros and ones
  }
  parameters::ParameterTable table;
  LanguageModel model;
};

experts::Routing training_step() {
  return {.mode = experts::RoutingMode::kBalanced,
          .training = experts::TrainingRoute{.seed = 3, .step = 4}};
}

// Choices of experts are kept, so that a small change of a weight does not change who is chosen.
class Tape : public experts::RouteTape {
 public:
  Tensor replay(const Key& key, int64_t /*groups*/) override {
    const auto found = kept_.find(key.layer);
    return found == kept_.end() ? Tensor() : found->second;
  }
  void record(const Key& key, const Tensor& expert_of_token) override {
    kept_[key.layer] = expert_of_token.clone();
  }

 private:
  std::map<int64_t, Tensor> kept_;
};

TEST(DecoderParts, GradientsOfEveryParameterMatchCentralDifferences) {
  for (const auto& [name, change] : test::decoder_variants()) {
    SCOPED_TRACE(name);
    config::Config config = small(change);
    config.experts.balance_weight = 0;  // a loss beside, which the loss here does not show
    DoubleModel m(config);
    const Tensor tokens = at::randint(0, kVocabulary, {2, kContext}, at::kLong);
    const Tensor targets = at::randint(0, kVocabulary, {2 * kContext}, at::kLong);
    Tape tape;
    experts::Routing routing = training_step();
    routing.tape = &tape;
    const double scale = 1.0 / 16;
    const Tensor hidden = m.model.forward(tokens, routing);
    const auto result = m.model.losses_and_gradient(hidden, targets, scale);
    torch::autograd::backward({hidden}, {result.gradient});
    const auto loss = [&] {
      return scale * m.model.losses(m.model.forward(tokens, routing), targets).sum().item<double>();
    };
    for (const parameters::Segment& segment : m.table.segments()) {
      test::expect_gradient(m.table.view(m.table.master(), segment),
                            m.table.view(m.table.gradient(), segment), loss, segment.name);
    }
  }
}

TEST(DecoderParts, CacheGivesTheSameAsTheWholeSequence) {
  for (const auto& [name, change] : test::decoder_variants()) {
    SCOPED_TRACE(name);
    config::Config config = small(change);
    if (config.model.document_mask) continue;  // continuations are of one document
    DoubleModel m(config);
    const at::NoGradGuard no_grad;
    const Tensor tokens = at::randint(0, kVocabulary, {3, kContext}, at::kLong);
    const Tensor whole = m.model.forward(tokens, {}).view({3, kContext, 16});
    KeyValueCache cache = m.model.new_cache(3, at::kDouble);
    Tensor part = m.model.forward(tokens.narrow(1, 0, 3), {}, cache).view({3, 3, 16});
    EXPECT_LE((part - whole.narrow(1, 0, 3)).abs().max().item<double>(), 1e-12);
    for (int64_t i = 3; i < kContext; ++i) {
      part = m.model.forward(tokens.narrow(1, i, 1), {}, cache);
      EXPECT_LE((part - whole.select(1, i)).abs().max().item<double>(), 1e-12) << i;
    }
  }
}

TEST(DecoderParts, SizeCountsWhatTheTableHolds) {
  for (const auto& [name, change] : test::decoder_variants()) {
    SCOPED_TRACE(name);
    config::Config config = small(change);
    parameters::ParameterTable table;
    const LanguageModel model(config, table, test::lone_worker());
    EXPECT_EQ(model_size(config).total, table.num_parameters());
  }
}

// A document does not know what stood before it; without the mask it does.
TEST(DecoderParts, DocumentsAreReadAsIfAlone) {
  config::Config config = small([](config::Config& c) {
    c.model.positions = config::Positions::kRope;
    c.model.document_mask = true;
    c.model.separator = 0;
  });
  DoubleModel m(config);
  const at::NoGradGuard no_grad;
  const Tensor one = at::tensor({3, 4, 0, 5, 6, 7, 8, 9}, at::kLong).view({1, kContext});
  Tensor other = one.clone();
  other[0][0] = 10;
  const Tensor a = m.model.forward(one, {}), b = m.model.forward(other, {});
  EXPECT_TRUE(at::equal(a.narrow(0, 3, 5), b.narrow(0, 3, 5)));
  EXPECT_FALSE(at::allclose(a[2], b[2]));  // its end belongs to the first document
}

// Only differences of positions count.
TEST(DecoderParts, RopeKnowsDistancesAlone) {
  config::ModelConfig config;
  config.positions = config::Positions::kRope;
  config.width = 8;
  config.heads = 1;
  config.context = 64;
  const RopeTables tables = rope_tables(config, at::kDouble);
  const auto turned = [&](const Tensor& x, int64_t at) {
    const Tensor c = tables.cosines[at], s = tables.sines[at];
    const Tensor a = x.narrow(0, 0, 4), b = x.narrow(0, 4, 4);
    return at::cat({a * c - b * s, b * c + a * s});
  };
  at::manual_seed(1);
  const Tensor q = at::randn({8}, at::kDouble), k = at::randn({8}, at::kDouble);
  const double near = turned(q, 7).dot(turned(k, 3)).item<double>();
  EXPECT_NEAR(turned(q, 63).dot(turned(k, 59)).item<double>(), near, 1e-4);  // angles are fp32
  EXPECT_GT(std::abs(turned(q, 63).dot(turned(k, 3)).item<double>() - near), 1e-2);
}

TEST(DecoderParts, ScaledAnglesAreKeptWhereTheyAreFastAndStretchedWhereTheyAreSlow) {
  config::ModelConfig config;
  config.positions = config::Positions::kRope;
  config.width = 128;
  config.heads = 1;
  config.context = 8192;
  const std::vector<float> plain = rope_angles(config).per_position;
  config.rope_factor = 8;
  config.rope_context = 1024;
  for (const auto scaling : {config::RopeScaling::kLlama3, config::RopeScaling::kYarn}) {
    config.rope_scaling = scaling;
    config.rope_high = scaling == config::RopeScaling::kYarn ? 32 : 4;
    const RopeAngles scaled = rope_angles(config);
    EXPECT_EQ(scaled.per_position.front(), plain.front());
    EXPECT_FLOAT_EQ(scaled.per_position.back(), plain.back() / 8);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LE(scaled.per_position[i], plain[i] * (1 + 1e-6F));
      EXPECT_GE(scaled.per_position[i], plain[i] / 8 * (1 - 1e-6F));
    }
    EXPECT_EQ(scaled.magnitude > 1, scaling == config::RopeScaling::kYarn);
  }
  config.rope_scaling = config::RopeScaling::kLinear;
  EXPECT_FLOAT_EQ(rope_angles(config).per_position[5], plain[5] / 8);
}

}  // namespace
}  // namespace ballast::model
