// SPDX-License-Identifier: Apache-2.0
// Sparsely Gated and Switch layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/experts/expert_layer.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "tests/experts/layer_setting.h"
#include "tests/experts/plain_gate.h"
#include "tests/support/error_of.h"
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
using test::PlainGate;
using test::random_rows;

Tensor weights(const Layer& l, const std::string& name) {
  return l.table.view(l.table.master(), l.table.segment("layer.1." + name));
}

// f_e(h), in plain operations.
Tensor expert_output(const Layer& l, int64_t expert, const Tensor& h) {
  Tensor x = h;
  for (int64_t s = 0; s < 2; ++s) {
    const auto part = [&](const char* name) {
      return weights(l, fmt::format("expert.{}.sublayer.{}.{}", expert, s, name));
    };
    const Tensor normed =
        at::layer_norm(x, {test::kWidth}, part("norm.weight"), part("norm.bias"), 1e-5);
    const Tensor active = at::relu(at::mv(part("up.weight"), normed) + part("up.bias"));
    x = x + at::mv(part("down.weight"), active) + part("down.bias");
  }
  return x - h;
}

std::vector<std::vector<double>> logits_of(const Layer& l, const Tensor& h) {
  const Tensor normed = at::layer_norm(h, {test::kWidth}, weights(l, "gate.norm.weight"),
                                       weights(l, "gate.norm.bias"), 1e-5);
  const Tensor logits = at::mm(normed, weights(l, "gate.weight").t());
  std::vector<std::vector<double>> rows;
  for (int64_t t = 0; t < h.size(0); ++t) {
    rows.emplace_back();
    for (int64_t e = 0; e < logits.size(1); ++e) rows.back().push_back(logits[t][e].item<double>());
  }
  return rows;
}

// The layer by its definition: group by group with the plain gate, token by token.
struct PlainLayer {
  Tensor out;                       // [T, D]
  int64_t chosen = 0, dropped = 0;  // choices
  int64_t passed_by = 0;            // tokens
  double balance = 0;               // mean over the groups
};

PlainLayer plain_layer(const Layer& l, PlainGate gate, int64_t groups, const Tensor& h,
                       const std::vector<double>& draws = {}) {
  PlainLayer result;
  std::vector<Tensor> rows;
  const int64_t tokens = h.size(0) / groups;
  for (int64_t group = 0; group < groups; ++group) {
    const Tensor own = h.narrow(0, group * tokens, tokens);
    if (!draws.empty()) gate.draws = {draws.begin() + group * tokens, draws.end()};
    const auto routed = gate.route(logits_of(l, own));
    result.balance += gate.balance_loss(routed) / static_cast<double>(groups);
    for (int64_t t = 0; t < tokens; ++t) {
      const PlainGate::Token& token = routed[static_cast<size_t>(t)];
      Tensor y = own[t];
      bool has_any = false;
      for (size_t k = 0; k < token.expert.size(); ++k) {
        result.chosen += token.is_used[k] ? 1 : 0;
        result.dropped += token.is_used[k] && !token.has_place[k] ? 1 : 0;
        if (!token.has_place[k]) continue;
        has_any = true;
        y = y + token.weight[k] * expert_output(l, token.expert[k], own[t]);
      }
      result.passed_by += has_any ? 0 : 1;
      rows.push_back(y);
    }
  }
  result.out = at::stack(rows);
  return result;
}

PlainGate gate_of(const LayerShape& shape, double factor) {
  const bool is_switch = std::string(shape.router) == "switch";
  const double share =
      static_cast<double>(shape.tokens / shape.groups) / static_cast<double>(shape.experts);
  return {.experts = shape.experts,
          .of_token = is_switch ? 1 : 2,
          .capacity = static_cast<int64_t>(std::ceil(factor * share))};
}

std::vector<LayerShape> shapes() {
  std::vector<LayerShape> all;
  for (const char* router : {"switch", "sparsely_gated"}) {
    for (const double capacity : {-1.0, 0.0, 0.5, 1.0, 1.25, 2.0, 100.0}) {
      all.push_back({.router = router, .capacity = capacity});
      all.push_back(
          {.experts = 5, .groups = 3, .tokens = 3 * 7, .router = router, .capacity = capacity});
      all.push_back(
          {.experts = 7, .groups = 1, .tokens = 4, .router = router, .capacity = capacity});
    }
  }
  return all;
}

double factor_of(const LayerShape& shape) {
  if (shape.capacity >= 0) return shape.capacity;
  return std::string(shape.router) == "switch" ? 1.0 : 2.0;  // the paper's
}

enum class Ties { kNone, kAll, kSome };

// All gates equal: of every token the first experts are chosen. Some: those of two experts each, so
// that first choices tie with second ones, and second ones with third ones.
void make_ties(Layer& l, Ties ties) {
  const Tensor gates = weights(l, "gate.weight");
  for (int64_t e = 1; e < l.shape.experts; ++e) {
    if (ties == Ties::kAll) gates[e].copy_(gates[0]);
    if (ties == Ties::kSome && e % 2 == 1) gates[e].copy_(gates[e - 1]);
  }
}

void expect_plain(Layer& l, const PlainLayer& expected, const Tensor& h) {
  const Tensor y = l.layer.forward(h, l.routing());
  EXPECT_LE((y - expected.out).abs().max().item<double>(), 1e-12);
  const RoutingStats stats = l.layer.router().take_stats();
  EXPECT_EQ(stats.sum(kSumOfChoices), expected.chosen);
  EXPECT_EQ(stats.sum(kSumOfDropped), expected.dropped);
  EXPECT_EQ(stats.sum(kSumOfPassedBy), expected.passed_by);
  EXPECT_NEAR(stats.sum(kSumOfBalance) / stats.sum(kSumOfGroups), expected.balance, 1e-12);
}

TEST(GateLayer, IsThePlainReferenceForEveryCapacityAndTie) {
  for (const Ties ties : {Ties::kNone, Ties::kAll, Ties::kSome}) {
    for (const LayerShape& shape : shapes()) {
      SCOPED_TRACE(fmt::format("{}, capacity {}, {} experts, {} groups, {} tokens, ties {}",
                               shape.router, shape.capacity, shape.experts, shape.groups,
                               shape.tokens, static_cast<int>(ties)));
      Layer l(shape, test::lone_worker());
      make_ties(l, ties);
      const Tensor h = random_rows(shape.tokens, 1);
      const PlainLayer expected = plain_layer(l, gate_of(shape, factor_of(shape)), shape.groups, h);
      expect_plain(l, expected, h);
      if (ties == Ties::kAll && shape.capacity == 0.5 && shape.tokens > 4) {
        EXPECT_GT(expected.passed_by, shape.tokens / 2) << "the case is one of drops";
      }
    }
  }
}

// 1.1 x 100 / 10 is 11, but a little more than that in floating point.
TEST(GateLayer, TheCapacityIsNotRoundedUpByTheProductsRounding) {
  Layer l({.experts = 10, .groups = 1, .tokens = 100, .router = "switch", .capacity = 1.1},
          test::lone_worker());
  weights(l, "gate.weight").zero_();  // all choose the first expert
  l.layer.forward(random_rows(100, 2), l.routing());
  EXPECT_EQ(l.layer.router().take_stats().sum(kSumOfDropped), 100 - 11);
}

TEST(GateLayer, AtTestTimeNothingIsDropped) {
  for (const char* router : {"switch", "sparsely_gated"}) {
    const LayerShape shape{.groups = 1, .router = router, .capacity = 0.5};
    Layer l(shape, test::lone_worker());
    const Tensor h = random_rows(shape.tokens, 2);
    const Tensor y = l.layer.forward(h, {.mode = RoutingMode::kGreedy});
    const PlainLayer expected = plain_layer(l, gate_of(shape, 0), 1, h);
    EXPECT_LE((y - expected.out).abs().max().item<double>(), 1e-12);
  }
}

// The objective is the output's part plus the balance loss, averaged over groups and the two
// micro-steps that the routing names.
TEST(GateLayer, GradientsOfEverythingMatchCentralDifferences) {
  for (const char* router : {"switch", "sparsely_gated"}) {
    for (const double capacity : {0.0, 1.0}) {
      SCOPED_TRACE(fmt::format("{}, capacity {}", router, capacity));
      const LayerShape shape{.experts = 3,
                             .groups = 2,
                             .tokens = 14,
                             .router = router,
                             .capacity = capacity,
                             .balance_weight = 0.7,
                             .sublayers = 1};
      Layer l(shape, test::lone_worker());
      MemoryTape tape;  // the choices stay as they are while weights and tokens are moved
      Tensor h = random_rows(shape.tokens, 4).requires_grad_();
      const Tensor dy = random_rows(shape.tokens, 5);
      torch::autograd::backward({l.layer.forward(h, l.routing(&tape))}, {dy});
      const auto loss = [&] {
        const at::NoGradGuard no_grad;
        l.layer.router().take_stats();
        const double output = (l.layer.forward(h, l.routing(&tape)) * dy).sum().item<double>();
        const double balance = l.layer.router().take_stats().sum(kSumOfBalance);
        return output + 0.7 * balance / (2 * 2);
      };
      test::expect_gradient(h, h.grad(), loss, "tokens");
      for (const parameters::Segment& segment : l.table.segments()) {
        test::expect_gradient(l.table.view(l.table.master(), segment),
                              l.table.view(l.table.gradient(), segment), loss, segment.name);
      }
      EXPECT_GT(tape.replayed, 10);
      EXPECT_GT(l.gradient("layer.1.gate.weight").abs().max().item<double>(), 1e-3);
    }
  }
}

// GShard's second expert: used with twice its weight as the probability. One that is not leaves its
// place to others. Drawn by the token's place, anew every step: the same for whoever computes it.
TEST(GateLayer, ASecondExpertAtRandomIsUsedByItsWeight) {
  for (const double capacity : {0.0, 1.0, 2.0}) {
    const LayerShape shape{.groups = 2,
                           .tokens = 200,
                           .router = "sparsely_gated",
                           .capacity = capacity,
                           .second_expert = "random"};
    Layer l(shape, test::lone_worker());
    const TrainingRoute route = *l.routing().training;
    const uint64_t key = random_bits(route.seed, "second expert", route.step, route.micro_step);
    std::vector<double> draws;
    for (uint64_t t = 0; t < 200; ++t)
      draws.push_back(RandomStream(key, "layer", /*a=*/1, t).uniform());
    const Tensor h = random_rows(shape.tokens, 6);
    const PlainLayer expected = plain_layer(l, gate_of(shape, capacity), 2, h, draws);
    EXPECT_GT(expected.chosen, 1.3 * 200);
    EXPECT_LT(expected.chosen, 1.97 * 200);
    expect_plain(l, expected, h);
    Routing later = l.routing();
    later.training->step += 1;
    EXPECT_FALSE(at::equal(l.layer.forward(h, l.routing()), l.layer.forward(h, later)));
  }
}

TEST(GateLayer, AFreshOneBetweenBlocksIsTheIdentity) {
  Layer l({.router = "sparsely_gated"}, test::lone_worker());
  l.table.initialize(1);
  const Tensor h = random_rows(32, 6);
  EXPECT_TRUE(at::equal(l.layer.forward(h, l.routing()), h));
}

TEST(GateLayer, TellsBothExperts) {
  Layer l({.router = "sparsely_gated"}, test::lone_worker());
  const Tensor h = random_rows(9, 7);
  SeenRoute seen;
  l.layer.forward(
      h, {.mode = RoutingMode::kGreedy, .seen = [&](const SeenRoute& route) { seen = route; }});
  const auto tokens = PlainGate{.experts = 4, .of_token = 2}.route(logits_of(l, h));
  for (int64_t t = 0; t < 9; ++t) {
    EXPECT_EQ(seen.expert_of_token[t].item<int64_t>(), tokens[static_cast<size_t>(t)].expert[0]);
    EXPECT_EQ(seen.second_of_token[t].item<int64_t>(), tokens[static_cast<size_t>(t)].expert[1]);
  }
  EXPECT_EQ(seen.scores.scalar_type(), at::kFloat);
}

TEST(GateLayer, KnowsNeitherPricesNorBalancedTests) {
  Layer l({.router = "switch"}, test::lone_worker());
  const Tensor h = random_rows(8, 8);
  EXPECT_EQ(l.layer.router().prices(), nullptr);
  for (const RoutingMode mode : {RoutingMode::kPriced, RoutingMode::kBalanced})
    EXPECT_THAT(test::error_of([&] { l.layer.forward(h, {.mode = mode}); }),
                testing::HasSubstr("is for BASE layers"));
}

TEST(GateLayer, TokensThatAreNotFiniteAreForTheLossToShow) {
  for (const char* router : {"switch", "sparsely_gated"}) {
    Layer l({.groups = 1, .tokens = 8, .router = router, .capacity = 0}, test::lone_worker());
    Tensor h = random_rows(8, 10);
    h[3].fill_(NAN);
    const Tensor y = l.layer.forward(h, l.routing());
    EXPECT_TRUE(y[3].isnan().any().item<bool>());
    EXPECT_TRUE(y.slice(0, 4).isfinite().all().item<bool>());
    EXPECT_TRUE(l.layer.forward(h.fill_(NAN), l.routing()).isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace ballast::experts
