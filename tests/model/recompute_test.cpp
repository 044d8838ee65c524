// SPDX-License-Identifier: Apache-2.0
// With training.recompute blocks are computed again on the way back; nothing else differs.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>

#include "ballast/model/language_model.h"
#include "tests/model/gradients_when_told.h"
#include "tests/support/lone_worker.h"

namespace ballast::model {
namespace {

using at::Tensor;

config::Config dense(const std::string& recompute) {
  config::Config config;
  config.model = {.vocabulary = 11, .width = 8, .layers = 4, .heads = 2, .context = 6};
  config.training.recompute = config::choice_of<config::Recompute>(recompute);
  return config;
}

config::Config sparse(const std::string& recompute, const std::string& router,
                      const std::string& placement, int64_t layers) {
  config::Config config = dense(recompute);
  config.experts.router = router;
  config.experts.placement = config::choice_of<config::Placement>(placement);
  config.experts.layers = layers;
  config.experts.count = 4;
  config.experts.sublayers = 1;
  return config;
}

std::vector<config::Config> models(const std::string& recompute) {
  return {dense(recompute),
          sparse(recompute, "base", "spread", 2),
          sparse(recompute, "base", "replace", 2),
          sparse(recompute, "base", "top", 1),
          sparse(recompute, "switch", "replace", 2),
          sparse(recompute, "sparsely_gated", "spread", 1)};
}

// Forward and backward passes as training makes them.
struct Pass {
  Pass(const config::Config& config, at::ScalarType type)
      : model(config, table, test::lone_worker()) {
    table.allocate({.working = type, .master = type});
    table.initialize(1);
    const config::ModelConfig& sizes = config.model;
    tokens = (at::arange(4 * sizes.context) * 7).remainder(sizes.vocabulary).view({4, -1});
  }
  Tensor forward(step::StepWatch* watch = nullptr, BackwardProgress* progress = nullptr) const {
    return model.forward(tokens,
                         {.mode = experts::RoutingMode::kBalanced,
                          .training = experts::TrainingRoute{.groups = 2},
                          .watch = watch},
                         progress);
  }
  void backward(const Tensor& hidden) const {
    const Tensor targets = (tokens.view({-1}) * 3).remainder(model.config().vocabulary);
    torch::autograd::backward({hidden},
                              {model.losses_and_gradient(hidden, targets, 1.0 / 24).gradient});
  }

  parameters::ParameterTable table;
  LanguageModel model;
  Tensor tokens;
};

TEST(Recompute, ChangesNoBitOfValuesAndGradients) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const std::vector<config::Config> plain = models("none"), again = models("blocks");
    for (size_t i = 0; i < plain.size(); ++i) {
      SCOPED_TRACE(i);
      const Pass expected(plain[i], type), got(again[i], type);
      for (int micro_step = 0; micro_step < 2; ++micro_step) {  // the second adds to the first
        const Tensor a = expected.forward(), b = got.forward();
        ASSERT_TRUE(at::equal(a, b));
        expected.backward(a);
        got.backward(b);
        ASSERT_TRUE(at::equal(expected.table.gradient(), got.table.gradient()));
      }
      EXPECT_GT(got.table.gradient().abs().max().item<double>(), 0);
    }
  }
}

// V A F X S for vocabulary, attention, feed-forward, experts, assignment.
struct Notes : step::StepWatch {
  std::string letters;
  void switched(step::StepPart part) override { letters += "-AFXSCVO"[static_cast<int>(part)]; }
};

TEST(Recompute, CountsToThePartThatIsComputedAgain) {
  const auto order = [](config::Config config) {
    config.model.layers = 2;
    const Pass pass(config, at::kDouble);
    Notes notes;
    const Tensor hidden = pass.forward(&notes);
    notes.letters += "|";
    pass.backward(hidden);
    return notes.letters;
  };
  EXPECT_EQ(order(dense("blocks")), "VAFAFV|FAFAFAFAV");
  EXPECT_EQ(order(sparse("blocks", "base", "spread", 1)), "VAFXSXAFV|FAFAXSXFAFAV");
  EXPECT_EQ(order(sparse("blocks", "base", "replace", 2)), "VAXSXAXSXV|XSXAXSXAV");
}

TEST(Recompute, TellsOfBlocksWhoseGradientsAreDone) {
  const Pass pass(dense("blocks"), at::kDouble);
  test::GradientsWhenTold progress(pass.table);
  pass.backward(pass.forward(nullptr, &progress));
  ASSERT_EQ(progress.told.size(), 4U);
  for (int64_t i = 0; i < 4; ++i) {
    const auto& [block, gradients] = progress.told[static_cast<size_t>(i)];
    EXPECT_EQ(block, 3 - i);
    const std::vector<Tensor> done = progress.from(block);
    ASSERT_EQ(gradients.size(), done.size());
    for (size_t k = 0; k < done.size(); ++k) {
      EXPECT_GT(done[k].abs().max().item<double>(), 0);
      EXPECT_TRUE(at::equal(gradients[k], done[k])) << block;
    }
  }
}

// Bytes of tensors that came to life on this thread since it was put in place.
struct LiveBytes : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*place*/, int64_t size, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

struct Bytes {
  int64_t kept, peak;
};
Bytes bytes_of(const std::string& recompute) {
  config::Config config = dense(recompute);
  config.model = {.vocabulary = 16, .width = 64, .layers = 8, .heads = 2, .context = 64};
  const Pass pass(config, at::kDouble);
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const Tensor hidden = pass.forward();
  const int64_t kept = live->now;
  pass.backward(hidden);
  return {kept, live->peak};
}

TEST(Recompute, KeepsTwoRowsOfEachTokenAndBlock) {
  const Bytes plain = bytes_of("none"), again = bytes_of("blocks");
  constexpr int64_t kRow = 4 * 64 * 64 * 8;  // [T, D] in double
  // Ends of the stream: the last sum and its norm. Norms and tokens are less than a row.
  EXPECT_LE(again.kept, (2 * 8 + 3) * kRow);
  EXPECT_GE(plain.kept, (10 * 8) * kRow);
  // On the way back one block's are there as well, with as much for its gradients.
  EXPECT_LE(again.peak, again.kept + 2 * 14 * kRow);
  EXPECT_LT(again.peak, plain.peak * 6 / 10);
}

TEST(Recompute, KeepsNothingWithoutAGraph) {
  const Pass pass(dense("blocks"), at::kDouble), plain(dense("none"), at::kDouble);
  const at::AutoGradMode no_graph(false);
  const Tensor hidden = pass.forward();
  EXPECT_FALSE(hidden.requires_grad());
  EXPECT_TRUE(at::equal(hidden, plain.forward()));
}

}  // namespace
}  // namespace ballast::model
