// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/experts/assigner.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/gradient_check.h"
#include "tests/support/lone_worker.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using test::kWidth;
using test::Layer;
using test::lone_worker;
using test::MemoryTape;
using test::random_rows;

Tensor segment(const Layer& l, int64_t expert, int64_t sublayer, const std::string& part) {
  return l.table.view(
      l.table.master(),
      l.table.segment(fmt::format("layer.1.expert.{}.sublayer.{}.{}", expert, sublayer, part)));
}

// The layer as the paper defines it, token by token, in plain operations.
Tensor plain_layer(const Layer& l, const Tensor& h, const Tensor& expert_of_token,
                   const Tensor& embeddings) {
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < h.size(0); ++t) {
    const auto e = expert_of_token[t].item<int64_t>();
    Tensor x = h[t];
    for (int64_t s = 0; s < 2; ++s) {
      const Tensor normed = at::layer_norm(x, {test::kWidth}, segment(l, e, s, "norm.weight"),
                                           segment(l, e, s, "norm.bias"), 1e-5);
      const Tensor active =
          at::relu(at::mv(segment(l, e, s, "up.weight"), normed) + segment(l, e, s, "up.bias"));
      x = x + at::mv(segment(l, e, s, "down.weight"), active) + segment(l, e, s, "down.bias");
    }
    const Tensor f = x - h[t];  // the stack is x + f(x)
    rows.push_back(at::sigmoid(h[t].dot(embeddings[e])) * f + h[t]);
  }
  return at::stack(rows);
}

Tensor embeddings_of(const Layer& l) {
  return l.table.view(l.table.master(), l.table.segment("layer.1.expert_embeddings"));
}

// Greedy experts are those of the definition.
TEST(BaseLayer, GreedyRoutingIsThePapersFormula) {
  Layer l({}, lone_worker());
  const Tensor h = random_rows(13, 1);
  const Tensor expert = at::mm(h, embeddings_of(l).t()).argmax(1);
  const Tensor y = l.layer.forward(h, {.mode = RoutingMode::kGreedy});
  EXPECT_LE((y - plain_layer(l, h, expert, embeddings_of(l))).abs().max().item<double>(), 1e-12);
}

TEST(BaseLayer, PricedRoutingSubtractsThePrices) {
  Layer l({}, lone_worker());
  const Tensor h = random_rows(40, 2), prices = at::tensor({2.0, -1.0, 0.5, -1.5}, at::kDouble);
  l.layer.router().prices()->set(prices);
  const Tensor expert = (at::mm(h, embeddings_of(l).t()) - prices).argmax(1);
  EXPECT_FALSE(at::equal(expert, at::mm(h, embeddings_of(l).t()).argmax(1)));
  const Tensor y = l.layer.forward(h, {.mode = RoutingMode::kPriced});
  EXPECT_LE((y - plain_layer(l, h, expert, embeddings_of(l))).abs().max().item<double>(), 1e-12);
}

TEST(BaseLayer, ShufflesWhatIsCutIntoGroups) {
  const Layer one({.groups = 1}, lone_worker()), two({.groups = 2}, lone_worker());
  EXPECT_FALSE(one.layer.router().shuffles(one.routing()));
  EXPECT_TRUE(two.layer.router().shuffles(two.routing()));
  EXPECT_FALSE(two.layer.router().shuffles({.mode = RoutingMode::kGreedy}));
}

// Whatever the shuffle and the groups, the result is the formula with the assignment that was made.
TEST(BaseLayer, BalancedRoutingIsThePapersFormula) {
  for (const test::LayerShape& shape : {test::LayerShape{},
                                        {.groups = 1, .tokens = 30},
                                        {.groups = 3, .tokens = 3 * 7},
                                        {.experts = 5, .groups = 4, .tokens = 4 * 3},
                                        {.groups = 4, .tokens = 32, .shuffle = false}}) {
    SCOPED_TRACE(fmt::format("{} groups, {} tokens", shape.groups, shape.tokens));
    Layer l(shape, lone_worker());
    const Tensor h = random_rows(shape.tokens, 3);
    const Tensor y = l.layer.forward(h, l.routing());
    const Tensor scores = at::mm(h, embeddings_of(l).t());
    // Every token must be the formula's with one of the experts, and loads must be equal.
    const int64_t tokens = shape.tokens;
    Tensor expert = at::full({tokens}, -1, at::kLong);
    for (int64_t e = 0; e < shape.experts; ++e) {
      const Tensor all = plain_layer(l, h, at::full({tokens}, e, at::kLong), embeddings_of(l));
      const Tensor same = (all - y).abs().amax(1) < 1e-12;
      expert = at::where(same, at::full_like(expert, e), expert);
    }
    EXPECT_GE(expert.min().item<int64_t>(), 0) << "a token that is no expert's";
    const Tensor loads = at::bincount(expert, {}, shape.experts);
    // Each group gives each expert the floor or the ceiling of its share.
    const int64_t share = tokens / shape.groups / shape.experts;
    EXPECT_GE(loads.min().item<int64_t>(), shape.groups * share);
    EXPECT_LE(loads.max().item<int64_t>(), shape.groups * (share + 1));
    if (shape.groups == 1) {
      Assigner reference({});
      const Tensor optimal = reference.assign(scores.to(at::kFloat)).expert_of_token.to(at::kLong);
      EXPECT_TRUE(at::equal(expert, optimal));
    }
  }
}

TEST(BaseLayer, GradientsOfEverythingMatchCentralDifferences) {
  const test::LayerShape shape{.experts = 3, .groups = 2, .tokens = 14};  // with remainders
  Layer l(shape, lone_worker());
  MemoryTape tape;  // the assignment stays as it is while weights and tokens are moved
  Tensor h = random_rows(shape.tokens, 4).requires_grad_();
  const Tensor dy = random_rows(shape.tokens, 5);
  const auto loss = [&] {
    const at::NoGradGuard no_grad;
    return (l.layer.forward(h, l.routing(&tape)) * dy).sum().item<double>();
  };
  torch::autograd::backward({l.layer.forward(h, l.routing(&tape))}, {dy});
  EXPECT_EQ(tape.kept.size(), 2U);
  test::expect_gradient(h, h.grad(), loss, "tokens");
  for (const parameters::Segment& segment : l.table.segments()) {
    test::expect_gradient(l.table.view(l.table.master(), segment),
                          l.table.view(l.table.gradient(), segment), loss, segment.name);
  }
  EXPECT_GT(tape.replayed, 10);
}

TEST(BaseLayer, AFreshLayerIsTheIdentity) {
  Layer l({}, lone_worker());
  l.table.initialize(1);
  const Tensor h = random_rows(32, 6);
  EXPECT_TRUE(at::equal(l.layer.forward(h, l.routing()), h));
  const Tensor w = embeddings_of(l);  // orthogonal rows of length 0.1
  EXPECT_LE((at::mm(w, w.t()) - 0.01 * at::eye(4, at::kDouble)).abs().max().item<double>(), 1e-12);
}

// With a gate that is open, one expert is a dense residual stack.
TEST(BaseLayer, OneExpertWithTheGateOpenIsTheDenseStack) {
  Layer l({.experts = 1, .groups = 2, .tokens = 32}, lone_worker());
  Tensor h = random_rows(32, 7);
  h.select(1, 0).fill_(1);  // h . w is 1e3 for all
  embeddings_of(l).zero_().select(1, 0).fill_(1e3);
  Tensor h1 = h.clone().requires_grad_(), h2 = h.clone().requires_grad_();
  const Tensor y = l.layer.forward(h1, l.routing());
  Tensor x = h2;
  for (int64_t s = 0; s < 2; ++s) {
    const auto part = [&](const char* name) {
      const parameters::Segment& found =
          l.table.segment(fmt::format("layer.1.expert.0.sublayer.{}.{}", s, name));
      return kernels::Parameter{l.table.view(l.table.master(), found), {}};
    };
    x = x + kernels::feed_forward(
                kernels::layer_norm(x, part("norm.weight"), part("norm.bias")),
                {part("up.weight"), part("up.bias"), part("down.weight"), part("down.bias")});
  }
  EXPECT_LE((y - x).abs().max().item<double>(), 1e-12);
  const Tensor dy = random_rows(32, 8);
  torch::autograd::backward({y, x}, {dy, dy});
  EXPECT_LE((h1.grad() - h2.grad()).abs().max().item<double>(), 1e-12);
}

TEST(BaseLayer, TellsWhatItSaw) {
  Layer l({.groups = 2, .tokens = 32}, lone_worker());
  const Tensor h = random_rows(32, 9);
  l.layer.forward(h, l.routing());
  l.layer.forward(h, l.routing());
  const RoutingStats stats = l.layer.router().take_stats();
  EXPECT_EQ(stats.sum(kSumOfTokens), 64);
  EXPECT_EQ(stats.sum(kSumOfGroups), 4);
  EXPECT_LE(l.layer.router().largest_gap(stats), 1e-6);  // exact in fp32
  EXPECT_GT(stats.sum(kSumOfBest), 0);
  EXPECT_LE(stats.sum(kSumOfBest), 64);
  EXPECT_NEAR(stats.price_sum().sum().item<double>(), 0, 1e-9) << "prices less their mean";
  EXPECT_EQ(l.layer.router().take_stats().sum(kSumOfTokens), 0);
}

TEST(BaseLayer, ScoresThatAreNotFiniteAreForTheLossToShow) {
  Layer l({.groups = 1, .tokens = 8}, lone_worker());
  Tensor h = random_rows(8, 10);
  h[3].fill_(NAN);
  const Tensor y = l.layer.forward(h, l.routing());
  EXPECT_TRUE(y[3].isnan().any().item<bool>());
  EXPECT_TRUE(y.slice(0, 4).isfinite().all().item<bool>());
  h.fill_(NAN);
  EXPECT_TRUE(l.layer.forward(h, l.routing()).isnan().all().item<bool>());
}

}  // namespace
}  // namespace ballast::experts
