// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_clock.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>
#include <string>

#include "ballast/model/language_model.h"
#include "tests/support/lone_worker.h"

namespace ballast::model {
namespace {

using at::Tensor;
using step::StepPart;
using testing::ElementsAre;
using testing::Pair;

// Writes down what it is told: V A F X S C for vocabulary, attention, feed-forward, experts,
// assignment, communication.
class Notes : public step::StepWatch {
 public:
  std::string letters;

 private:
  void switched(StepPart part) override { letters += "-AFXSCVO"[static_cast<int>(part)]; }
};

config::Config dense() {
  config::Config config;
  config.model = {.vocabulary = 11, .width = 8, .layers = 2, .heads = 2, .context = 6};
  return config;
}

config::Config sparse(const std::string& router, const std::string& placement, int64_t layers) {
  config::Config config = dense();
  config.experts.router = router;
  config.experts.placement = config::choice_of<config::Placement>(placement);
  config.experts.layers = layers;
  config.experts.count = 4;
  config.experts.sublayers = 1;
  return config;
}

// A forward and a backward pass as training makes them.
struct Pass {
  explicit Pass(const config::Config& config) : model(config, table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(1);
  }
  Tensor forward(step::StepWatch* watch) const {
    const Tensor tokens = (at::arange(24) * 7).remainder(11).view({4, 6});
    return model.forward(tokens, {.mode = experts::RoutingMode::kBalanced,
                                  .training = experts::TrainingRoute{.groups = 2},
                                  .watch = watch});
  }
  void backward(const Tensor& hidden) const {
    const Tensor targets = (at::arange(24) * 5).remainder(11);
    torch::autograd::backward({hidden},
                              {model.losses_and_gradient(hidden, targets, 1.0 / 24).gradient});
  }

  parameters::ParameterTable table;
  LanguageModel model;
};

struct Order {
  std::string forward, backward;
};
Order order_of(const config::Config& config) {
  const Pass pass(config);
  Notes notes;
  const Tensor hidden = pass.forward(&notes);
  const std::string forward = notes.letters;
  pass.backward(hidden);
  return {forward, notes.letters.substr(forward.size())};
}

// Backward is the reverse, from the loss, where forward ended.
void expect_order(const config::Config& config, const std::string& forward) {
  const Order order = order_of(config);
  EXPECT_EQ(order.forward, forward);
  EXPECT_EQ(order.backward, std::string(forward.rbegin() + 1, forward.rend()));
}

TEST(StepWatch, IsToldOfThePartsOfADenseModel) { expect_order(dense(), "VAFAFV"); }

TEST(StepWatch, IsToldOfLayersBetweenBlocks) {
  expect_order(sparse("base", "spread", 1), "VAFXSXAFV");
  expect_order(sparse("base", "spread", 2), "VXSXAFXSXAFV");
  expect_order(sparse("base", "top", 1), "VAFAFXSXV");
}

TEST(StepWatch, IsToldOfLayersInPlaceOfFeedForwards) {
  for (const char* router : {"base", "switch", "sparsely_gated"}) {
    SCOPED_TRACE(router);
    expect_order(sparse(router, "replace", 1), "VAFAXSXV");
    expect_order(sparse(router, "replace", 2), "VAXSXAXSXV");
  }
}

TEST(StepWatch, IsNotInTheGraphWhereThereIsNone) {
  const Tensor x = at::ones({2, 2}).requires_grad_();
  EXPECT_TRUE(step::pass_into(StepPart::kAttention, x, nullptr).is_same(x));
  Notes notes;
  notes.switch_to(StepPart::kAttention);
  EXPECT_TRUE(step::pass_into(StepPart::kAttention, x, &notes).is_same(x));
  EXPECT_EQ(notes.letters, "A");
}

TEST(StepWatch, ChangesNoBitOfTheGradients) {
  for (const config::Config& config :
       {dense(), sparse("base", "spread", 2), sparse("switch", "replace", 1),
        sparse("sparsely_gated", "replace", 2)}) {
    const Pass with(config), without(config);
    Notes notes;
    const Tensor watched = with.forward(&notes), plain = without.forward(nullptr);
    EXPECT_TRUE(at::equal(watched, plain));
    with.backward(watched);
    without.backward(plain);
    EXPECT_TRUE(at::equal(with.table.gradient(), without.table.gradient()));
    EXPECT_GT(with.table.gradient().abs().max().item<double>(), 0);
  }
}

TEST(StepWatch, KnowsEachPartByAnotherName) {
  std::set<std::string_view> names;
  for (int part = 0; part < step::kStepParts; ++part)
    names.insert(step::part_name(static_cast<StepPart>(part)));
  EXPECT_EQ(std::ssize(names), step::kStepParts);
  EXPECT_EQ(step::part_name(StepPart::kFeedForward), "feed_forward");
}

std::map<std::string, double> by_name(const std::vector<step::PartSeconds>& parts) {
  std::map<std::string, double> map;
  for (const step::PartSeconds& part : parts)
    map[std::string(step::part_name(part.part))] = part.seconds;
  return map;
}

TEST(StepClock, TakesTheTimeOfEachPart) {
  double now = 100;
  step::StepClock clock([&] { return now; });
  const auto spend = [&](StepPart part, double seconds) {
    clock.switch_to(part);
    now += seconds;
  };
  for (int step = 0; step < 2; ++step) {  // a second step starts anew
    clock.start();
    now += 7;
    spend(StepPart::kAttention, 1);
    spend(StepPart::kOptimizer, 2);
    spend(StepPart::kAttention, 4);
    spend(StepPart::kOther, 8);
    spend(StepPart::kExperts, 0);
    spend(StepPart::kOptimizer, 16);
    clock.stop();
    EXPECT_THAT(by_name(clock.read()),
                ElementsAre(Pair("attention", 5), Pair("experts", 0), Pair("optimizer", 18)));
    now += 1000;
    clock.switch_to(StepPart::kVocabulary);  // between the steps nobody counts
  }
  EXPECT_THROW(clock.stop(), c10::Error);
}

// A clock that ticks once each time it is read: a part takes as many ticks as it was gone through.
TEST(StepClock, CountsEveryPartOfAPassOnTheWayThereAndBack) {
  double ticks = 0;
  step::StepClock clock([&] { return ticks++; });
  const Pass pass(sparse("switch", "replace", 1));
  clock.start();
  pass.backward(pass.forward(&clock));
  clock.stop();
  const auto parts = by_name(clock.read());
  // V A F A X S X V, then X S X A F A V, and before them one tick of nothing in particular.
  EXPECT_THAT(parts, ElementsAre(Pair("assignment", 2), Pair("attention", 4), Pair("experts", 4),
                                 Pair("feed_forward", 2), Pair("vocabulary", 3)));
  double sum = 0;
  for (const auto& [name, count] : parts) sum += count;
  EXPECT_EQ(sum, ticks - 2) << "nothing of the pass is left out";
}

}  // namespace
}  // namespace ballast::model
