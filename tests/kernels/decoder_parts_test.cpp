// SPDX-License-Identifier: Apache-2.0
// The kernels of the decoder's parts against their twins in double.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/attention.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/dropout.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

class DecoderParts : public test::Twins {};

Tensor rms(const Tensor& x, double epsilon) {
  return x / (x.square().mean(-1, true) + epsilon).sqrt();
}

// Widths that 16-byte accesses divide and do not; with a bias and without.
TEST_P(DecoderParts, RmsNormEqualsItsTwin) {
  const NormForm form{NormKind::kRms, 1e-3};
  for (const int64_t width : {19, 64, 512}) {
    const Parameter weight = parameter({width}), bias = parameter({width});
    compare(
        random({21, width}) * 3 + 1, {weight},
        [&](const Tensor& x) { return layer_norm(x, weight, no_parameter(), form); },
        [](const Tensor& x, const auto& p) { return rms(x, 1e-3) * p[0]; });
    compare(
        random({21, width}), {weight, bias},
        [&](const Tensor& x) {
          const auto [sum, normed] = add_layer_norm(x, x, weight, bias, form);
          return sum + normed;
        },
        [](const Tensor& x, const auto& p) { return 2 * x + rms(2 * x, 1e-3) * p[0] + p[1]; });
  }
}

TEST_P(DecoderParts, LayerNormTakesAnEpsilonAndNoBias) {
  const Parameter weight = parameter({64});
  compare(
      random({21, 64}) * 0.1, {weight},
      [&](const Tensor& x) {
        return layer_norm(x, weight, no_parameter(), {NormKind::kLayer, 0.5});
      },
      [](const Tensor& x, const auto& p) {
        const Tensor centred = x - x.mean(1, true);
        return centred / (centred.square().mean(1, true) + 0.5).sqrt() * p[0];
      });
}

Tensor plain(const Tensor& x, Activation activation) {
  if (activation == Activation::kGelu) return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
  if (activation == Activation::kGeluTanh) {
    const double scale = std::sqrt(2 / M_PI);
    return 0.5 * x * (1 + at::tanh(scale * (x + 0.044715 * x * x * x)));
  }
  if (activation == Activation::kRelu2) return at::relu(x).square();
  if (activation == Activation::kRelu) return at::relu(x);
  const int64_t half = x.size(-1) / 2;
  const Tensor gate = x.narrow(-1, 0, half);
  return gate * at::sigmoid(gate) * x.narrow(-1, half, half);
}

TEST_P(DecoderParts, FeedForwardsOfAllActivationsEqualTheirTwins) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu2, Activation::kSwiglu}) {
    for (const int64_t hidden : {40, 21}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(activation)) + ", " + std::to_string(hidden));
      const int64_t inner = hidden * columns_taken(activation);
      const Parameter up = parameter({inner, 12}), up_bias = parameter({inner}),
                      down = parameter({12, hidden}), down_bias = parameter({12});
      compare(
          random({33, 12}), {up, up_bias, down, down_bias},
          [&](const Tensor& x) {
            return feed_forward(x, {up, up_bias, down, down_bias, activation});
          },
          [&](const Tensor& x, const auto& p) {
            return at::linear(plain(at::linear(x, p[0], p[1]), activation), p[2], p[3]);
          });
      compare(
          random({33, 12}), {up, down},
          [&](const Tensor& x) {
            return feed_forward(x, {up, no_parameter(), down, no_parameter(), activation});
          },
          [&](const Tensor& x, const auto& p) {
            return at::linear(plain(at::linear(x, p[0]), activation), p[1]);
          });
    }
  }
}

// Turns [B, S, heads, W] by tables [S, W/2].
Tensor turned_twin(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const int64_t half = x.size(3) / 2;
  const Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  const Tensor c = cosines.unsqueeze(1), s = sines.unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s}, 3);
}

struct AttentionTwin {
  int64_t rows, context;
  Heads heads;
  Tensor cosines, sines;  // in double; undefined: nothing is turned
  Tensor documents = {};  // [B, S]

  // weights: none, or those of the norms of queries and keys.
  Tensor operator()(const Tensor& qkv, const std::vector<Tensor>& weights) const {
    const Tensor all = qkv.view({rows, context, heads.queries + 2 * heads.keys, heads.width});
    Tensor q = all.narrow(2, 0, heads.queries), k = all.narrow(2, heads.queries, heads.keys);
    Tensor v = all.narrow(2, heads.queries + heads.keys, heads.keys);
    if (!weights.empty()) {
      q = rms(q, 1e-3) * weights[0];
      k = rms(k, 1e-3) * weights[1];
    }
    if (cosines.defined()) {
      q = turned_twin(q, cosines, sines);
      k = turned_twin(k, cosines, sines);
    }
    const int64_t times = heads.queries / heads.keys;
    k = k.repeat_interleave(times, 2).transpose(1, 2);
    v = v.repeat_interleave(times, 2).transpose(1, 2);
    Tensor mask = at::ones({context, context}, at::kBool).tril().unsqueeze(0);
    if (documents.defined())
      mask = mask.logical_and(documents.unsqueeze(2).eq(documents.unsqueeze(1)));
    const Tensor scores =
        at::matmul(q.transpose(1, 2), k.transpose(2, 3)) / std::sqrt(double(heads.width));
    const Tensor mixed =
        at::matmul(at::softmax(scores.masked_fill(mask.logical_not().unsqueeze(1), -1e30), -1), v);
    return mixed.transpose(1, 2).reshape({rows * context, -1});
  }
};

// Shapes for libtorch's kernels and our own on a CPU (context 64), groups of queries that share
// keys, widths of heads that a GPU's packs divide and do not.
TEST_P(DecoderParts, TurnedAndNormedAttentionEqualsItsTwin) {
  for (const auto& [context, heads] : {std::pair<int64_t, Heads>{11, {4, 4, 8}},
                                       {64, {2, 2, 16}},
                                       {11, {4, 2, 8}},
                                       {64, {4, 1, 32}},
                                       {9, {2, 1, 6}}}) {
    for (const bool turns : {false, true}) {
      for (const bool norms : {false, true}) {
        SCOPED_TRACE(std::to_string(context) + " x " + std::to_string(heads.keys) +
                     (turns ? ", turned" : "") + (norms ? ", normed" : ""));
        const int64_t rows = 3;
        const Tensor angles = at::rand({context, heads.width / 2}, at::kDouble) * 6;
        const auto here = [&](const Tensor& x) {
          const auto wide = GetParam().dtype == at::kDouble ? at::kDouble : at::kFloat;
          return x.to(at::Device(GetParam().device), wide);
        };
        Turning turning;
        turning.epsilon = 1e-3;
        AttentionTwin twin{rows, context, heads, {}, {}};
        if (turns) {
          turning.cosines = here(angles.cos());
          turning.sines = here(angles.sin());
          twin.cosines = exact(turning.cosines);
          twin.sines = exact(turning.sines);
        }
        std::vector<Parameter> weights;
        if (norms) {
          weights = {parameter({heads.width}), parameter({heads.width})};
          turning.query_norm = weights[0];
          turning.key_norm = weights[1];
        }
        compare(
            random({rows * context, heads.columns()}), weights,
            [&](const Tensor& x) { return causal_attention(x, rows, heads, turning); }, twin);
      }
    }
  }
}

TEST_P(DecoderParts, AttentionStaysWithinDocuments) {
  const int64_t rows = 2, context = 10;
  const Heads heads{4, 2, 8};
  const Tensor documents =
      at::tensor({0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}, at::kLong)
          .view({rows, context});
  const AttentionTwin twin{rows, context, heads, {}, {}, documents};
  compare(
      random({rows * context, heads.columns()}), {},
      [&](const Tensor& x) {
        return causal_attention(x, rows, heads, {}, documents.to(GetParam().device));
      },
      twin);
}

TEST_P(DecoderParts, CappedLossEqualsItsTwin) {
  const int64_t rows = 70, vocabulary = 50, width = 8;
  const double cap = 3;
  const Parameter output = parameter({vocabulary, width});
  const Tensor targets = at::randint(0, vocabulary, {rows}, longs()),
               hidden = random({rows, width});
  Tensor leaf = exact(output.value).requires_grad_(), x = exact(hidden).requires_grad_();
  const Tensor before = exact(output.gradient);
  const Tensor expected = at::cross_entropy_loss(cap * at::tanh(at::linear(x, leaf) / cap),
                                                 targets.cpu(), {}, at::Reduction::None);
  expected.sum().mul(0.25).backward();
  const auto [losses, gradient] =
      next_token_losses_and_gradient(hidden, output, targets, 0.25, cap);
  expect_close(losses, expected, "losses");
  expect_close(gradient, x.grad(), "hidden gradient");
  expect_close(output.gradient, before + leaf.grad(), "output gradient");
  expect_close(next_token_losses(hidden, output.value, targets, cap), expected, "losses alone");
}

TEST_P(DecoderParts, DropoutLeavesOutItsPartAndScalesTheRest) {
  const Tensor x = random({512, 96}).abs().add(0.5), key = at::full({1}, 77, longs());
  const Tensor y = dropout(x, {key, 3, 0, 0.25});
  const Tensor kept = y.ne(0);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 0.01);
  expect_close(y.masked_select(kept), exact(x).masked_select(kept.cpu()) / 0.75, "kept");
  // No column and no row is left out more often than the others: 5 deviations of a binomial.
  const Tensor of_columns = kept.to(at::kDouble).mean(0), of_rows = kept.to(at::kDouble).mean(1);
  EXPECT_LT((of_columns - 0.75).abs().max().item<double>(), 5 * std::sqrt(0.1875 / 512));
  EXPECT_LT((of_rows - 0.75).abs().max().item<double>(), 5 * std::sqrt(0.1875 / 96));
  // The gradient goes the same way; another place and another key leave out others.
  Tensor leaf = x.clone().requires_grad_();
  dropout(leaf, {key, 3, 0, 0.25}).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad().ne(0), kept));
  EXPECT_FALSE(at::equal(dropout(x, {key, 4, 0, 0.25}), y));
  EXPECT_FALSE(at::equal(dropout(x, {key + 1, 3, 0, 0.25}), y));
}

// Rows of a batch that two workers share are treated as one worker would.
TEST_P(DecoderParts, DropoutGoesByTheRowOfTheWholeBatch) {
  const Tensor x = random({20, 12}), key = at::full({1}, -5, longs());
  const Tensor whole = dropout(x, {key, 0, 0, 0.5});
  EXPECT_TRUE(at::equal(dropout(x.narrow(0, 8, 12), {key, 0, 8, 0.5}), whole.narrow(0, 8, 12)));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DecoderParts, test::cpu_cases(), test::dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DecoderParts, test::cuda_cases(), test::dtype_name);

}  // namespace
}  // namespace ballast::kernels
