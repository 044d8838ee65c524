// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router_frame.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/experts/assigner.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/gradient_check.h"
#include "tests/support/lone_worker.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using test::kWidth;
using test::Layer;
using test::LayerShape;
using test::lone_worker;
using test::MemoryTape;
using test::random_rows;

// Every frame there is, of each router.
struct FrameCase {
  const char *router, *features, *gate, *scores;
  bool look_ahead;
  int64_t per_token = 0;

  void operator()(config::ExpertsConfig& experts) const {
    experts.features = config::choice_of<config::Features>(features);
    experts.gate = config::choice_of<config::Gate>(gate);
    experts.scores = config::choice_of<config::Scores>(scores);
    experts.look_ahead = look_ahead;
    experts.per_token = per_token;
  }
  LayerShape shape(int64_t tokens = 24) const {
    return {.experts = 4, .groups = 2, .tokens = tokens, .router = router, .frame = *this};
  }
  bool is_base() const { return std::string(router) == "base"; }
};

std::vector<FrameCase> frames() {
  std::vector<FrameCase> cases;
  for (const char* router : {"base", "switch", "sparsely_gated"})
    for (const char* features : {"raw", "normed"})
      for (const char* gate : {"sigmoid", "softmax"})
        for (const char* scores : {"dot", "cosine"})
          for (const bool look_ahead : {false, true})
            cases.push_back({router, features, gate, scores, look_ahead});
  for (const char* gate : {"sigmoid", "softmax"})
    for (const int64_t per_token : {2, 3})
      cases.push_back({"base", "normed", gate, "cosine", true, per_token});
  return cases;
}

std::vector<FrameCase> base_frames() {
  std::vector<FrameCase> cases = frames();
  std::erase_if(cases, [](const FrameCase& frame) { return !frame.is_base(); });
  return cases;
}

std::string case_name(const testing::TestParamInfo<FrameCase>& given) {
  const FrameCase& c = given.param;
  return fmt::format("{}_{}_{}_{}{}{}", c.router, c.features, c.gate, c.scores,
                     c.look_ahead ? "_ahead" : "",
                     c.per_token > 0 ? fmt::format("_{}", c.per_token) : "");
}

class Frames : public testing::TestWithParam<FrameCase> {};
INSTANTIATE_TEST_SUITE_P(All, Frames, testing::ValuesIn(frames()), case_name);
// Gates have neither prices nor assignments.
class BaseFrames : public testing::TestWithParam<FrameCase> {};
INSTANTIATE_TEST_SUITE_P(All, BaseFrames, testing::ValuesIn(base_frames()), case_name);

Tensor value_of(const Layer& l, const std::string& name) {
  return l.table.view(l.table.master(), l.table.segment("layer.1." + name));
}

Tensor through_expert(const Layer& l, int64_t expert, const Tensor& h) {
  Tensor x = h;
  for (int64_t s = 0; s < l.shape.sublayers; ++s) {
    const auto part = [&](const char* name) {
      return value_of(l, fmt::format("expert.{}.sublayer.{}.{}", expert, s, name));
    };
    const Tensor normed =
        at::layer_norm(x, {test::kWidth}, part("norm.weight"), part("norm.bias"), 1e-5);
    const Tensor active = at::relu(at::mv(part("up.weight"), normed) + part("up.bias"));
    x = x + at::mv(part("down.weight"), active) + part("down.bias");
  }
  return x;
}

// The frame in plain operations.
struct PlainFrame {
  Tensor affinities, scores;  // [T, E]
};

PlainFrame plain_frame(const FrameCase& frame, const Layer& l, const Tensor& read) {
  const std::string norm = frame.is_base() ? "router_norm" : "gate.norm";
  const Tensor w = value_of(l, frame.is_base() ? "expert_embeddings" : "gate.weight");
  const Tensor features = std::string(frame.features) == "raw"
                              ? read
                              : at::layer_norm(read, {test::kWidth}, value_of(l, norm + ".weight"),
                                               value_of(l, norm + ".bias"), 1e-5);
  const Tensor affinities = at::mm(features, w.t());
  return {affinities,
          std::string(frame.scores) == "dot" ? affinities : affinities / w.square().sum(1).sqrt()};
}

Tensor plain_weights(const FrameCase& frame, const Tensor& affinities, const Tensor& chosen) {
  if (std::string(frame.gate) == "sigmoid") return at::sigmoid(affinities.index_select(0, chosen));
  if (chosen.size(0) == 1) return at::softmax(affinities, 0).index_select(0, chosen);
  return at::softmax(affinities.index_select(0, chosen), 0);
}

// Token by token; expert [K, T].
Tensor plain_layer(const FrameCase& frame, const Layer& l, const Tensor& h,
                   const Tensor& affinities, const Tensor& expert) {
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < h.size(0); ++t) {
    const Tensor chosen = expert.select(1, t);
    const Tensor weights = plain_weights(frame, affinities[t], chosen);
    Tensor y = h[t];
    for (int64_t k = 0; k < chosen.size(0); ++k)
      y = y + weights[k] * (through_expert(l, chosen[k].item<int64_t>(), h[t]) - h[t]);
    rows.push_back(y);
  }
  return at::stack(rows);
}

TEST_P(Frames, GreedyRoutingIsTheFormula) {
  const FrameCase& frame = GetParam();
  Layer l(frame.shape(), test::lone_worker());
  const Tensor h = random_rows(13, 1), earlier = random_rows(13, 2);
  const auto [affinities, scores] = plain_frame(frame, l, frame.look_ahead ? earlier : h);
  const Tensor expert =
      scores.argsort(1, /*descending=*/true).narrow(1, 0, l.layer.experts_of_token()).t();
  const Tensor y = l.layer.forward(h, {.mode = RoutingMode::kGreedy}, earlier);
  const Tensor expected = plain_layer(frame, l, h, affinities, expert);
  EXPECT_LE((y - expected).abs().max().item<double>(), 1e-12);
}

TEST_P(BaseFrames, PricedRoutingSubtractsPricesFromWhatIsCompared) {
  const FrameCase& frame = GetParam();
  Layer l(frame.shape(), test::lone_worker());
  const Tensor h = random_rows(40, 3), earlier = random_rows(40, 4),
               prices = at::tensor({1.0, -0.5, 0.25, -0.75}, at::kDouble);
  l.layer.router().prices()->set(prices);
  const auto [affinities, scores] = plain_frame(frame, l, frame.look_ahead ? earlier : h);
  const Tensor expert = (scores - prices)
                            .argsort(1, /*descending=*/true)
                            .narrow(1, 0, l.layer.experts_of_token())
                            .t();
  const Tensor y = l.layer.forward(h, {.mode = RoutingMode::kPriced}, earlier);
  const Tensor expected = plain_layer(frame, l, h, affinities, expert);
  EXPECT_LE((y - expected).abs().max().item<double>(), 1e-12);
}

// One group: the experts on the tape are the optima of the scores, round after round, and what
// comes out is the formula with them.
TEST_P(BaseFrames, BalancedRoutingIsTheFormulaWithTheOptimum) {
  const FrameCase& frame = GetParam();
  LayerShape shape = frame.shape();
  shape.groups = 1;
  Layer l(shape, test::lone_worker());
  const Tensor h = random_rows(24, 5), earlier = random_rows(24, 6);
  MemoryTape tape;
  const Tensor y = l.layer.forward(h, l.routing(&tape), earlier);
  ASSERT_EQ(tape.kept.size(), 1U);
  const int64_t of_token = l.layer.experts_of_token();
  const Tensor expert = tape.kept.begin()->second.to(at::kLong).view({of_token, 24});
  const auto [affinities, scores] = plain_frame(frame, l, frame.look_ahead ? earlier : h);
  EXPECT_LE((y - plain_layer(frame, l, h, affinities, expert)).abs().max().item<double>(), 1e-12);
  Assigner reference({.non_finite = assignment::NonFinite::kForbid});
  Tensor left = scores.to(at::kFloat);
  for (int64_t k = 0; k < of_token; ++k) {
    const Tensor found = reference.assign(left).expert_of_token.to(at::kLong);
    EXPECT_TRUE(at::equal(found, expert[k])) << "round " << k;
    left = left.scatter(1, found.unsqueeze(1), -INFINITY);
    EXPECT_EQ(at::bincount(expert[k], {}, 4).max().item<int64_t>(), 6) << "equal loads";
  }
}

// Of the experts' own weights base_layer_test.cpp and gate_layer_test.cpp take them.
TEST_P(Frames, GradientsOfTokensAndRoutersMatchCentralDifferences) {
  const FrameCase& frame = GetParam();
  LayerShape shape = frame.shape(14);  // with remainders
  shape.experts = 3;
  shape.sublayers = 1;
  shape.capacity = 0;
  shape.balance_weight = 0;  // added on the way back alone: the result does not have it
  Layer l(shape, test::lone_worker());
  MemoryTape tape;  // the choice stays as it is while weights and tokens are moved
  Tensor h = random_rows(14, 7).requires_grad_(), earlier = random_rows(14, 8).requires_grad_();
  const Tensor dy = random_rows(14, 9);
  const auto loss = [&] {
    const at::NoGradGuard no_grad;
    return (l.layer.forward(h, l.routing(&tape), earlier) * dy).sum().item<double>();
  };
  torch::autograd::backward({l.layer.forward(h, l.routing(&tape), earlier)}, {dy});
  test::expect_gradient(h, h.grad(), loss, "tokens");
  ASSERT_EQ(earlier.grad().defined(), frame.look_ahead);
  if (frame.look_ahead) test::expect_gradient(earlier, earlier.grad(), loss, "earlier tokens");
  for (const parameters::Segment& segment : l.table.segments()) {
    if (segment.owner != parameters::Owner::kRouter) continue;
    test::expect_gradient(l.table.view(l.table.master(), segment),
                          l.table.view(l.table.gradient(), segment), loss, segment.name);
  }
}

TEST_P(Frames, TellTheMeanGate) {
  const FrameCase& frame = GetParam();
  LayerShape shape = frame.shape();
  shape.groups = 1;
  Layer l(shape, test::lone_worker());
  const Tensor h = random_rows(24, 10), earlier = random_rows(24, 11);
  MemoryTape tape;
  l.layer.forward(h, l.routing(&tape), earlier);
  const Tensor expert =
      tape.kept.begin()->second.to(at::kLong).view({l.layer.experts_of_token(), 24});
  const Tensor affinities = plain_frame(frame, l, frame.look_ahead ? earlier : h).affinities;
  double sum = 0;
  for (int64_t t = 0; t < 24; ++t)
    sum += plain_weights(frame, affinities[t], expert.select(1, t))[0].item<double>();
  const RoutingStats stats = l.layer.router().take_stats();
  EXPECT_EQ(stats.sum(kSumOfTokens), 24);
  EXPECT_NEAR(stats.sum(kSumOfGates), sum, 1e-12);
}

// Routers' parameters learn at a rate of their own, all others at 1.
TEST(RouterRate, IsThatOfRoutersAlone) {
  Layer l({.frame = [](config::ExpertsConfig& experts) { experts.router_rate = 0.125; }},
          test::lone_worker());
  int64_t slow = 0;
  for (const parameters::Segment& segment : l.table.segments()) {
    const bool is_router = segment.name.find("expert_embeddings") != std::string::npos ||
                           segment.name.find("router_norm") != std::string::npos;
    EXPECT_EQ(segment.rate, is_router ? 0.125 : 1.0) << segment.name;
    slow += is_router ? 1 : 0;
  }
  EXPECT_EQ(slow, 3);
  for (const parameters::ParameterTable::Group& group : l.table.groups())
    EXPECT_EQ(group.rate, group.owner == parameters::Owner::kRouter ? 0.125 : 1.0);
}

TEST(EmbeddingGain, IsTheLengthOfAFreshEmbedding) {
  Layer l({.frame = [](config::ExpertsConfig& experts) { experts.embedding_gain = 0.7; }},
          test::lone_worker());
  l.table.initialize(1);
  const Tensor w = value_of(l, "expert_embeddings");
  EXPECT_LE((at::mm(w, w.t()) - 0.49 * at::eye(4, at::kDouble)).abs().max().item<double>(), 1e-12);
}

// Each token has K different experts, and each expert exactly K T / E tokens of each group.
TEST(SeveralExperts, AreDifferentAndBalanced) {
  for (const int64_t per_token : {2, 3, 4}) {
    Layer l({.experts = 4,
             .groups = 3,
             .tokens = 3 * 16,
             .frame = [&](config::ExpertsConfig& experts) { experts.per_token = per_token; }},
            test::lone_worker());
    MemoryTape tape;
    const Tensor h = random_rows(48, 12);
    l.layer.forward(h, l.routing(&tape), h);
    ASSERT_EQ(tape.kept.size(), 3U);
    for (const auto& [key, kept] : tape.kept) {
      const Tensor expert = kept.to(at::kLong).view({per_token, 16});
      EXPECT_TRUE(
          (at::bincount(expert.reshape({-1}), {}, 4) == 16 * per_token / 4).all().item<bool>());
      const Tensor sorted = std::get<0>(expert.sort(0));
      EXPECT_TRUE((sorted.diff(1, 0) > 0).all().item<bool>()) << "no expert twice";
    }
  }
}

}  // namespace
}  // namespace ballast::experts
