// SPDX-License-Identifier: Apache-2.0
// Each kernel against its plain twin, written with libtorch's own differentiable operations in
// double.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/kernels/adam.h"
#include "ballast/kernels/attention.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/embedding.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"

namespace ballast {
namespace {

using at::Tensor;

struct Case {
  at::ScalarType dtype;
  double tolerance;  // relative to the largest element: rounding of sums of about a hundred terms
};

class Kernels : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape, at::kDouble).to(GetParam().dtype);
  }
  Parameter parameter(at::IntArrayRef shape) const { return {random(shape), random(shape)}; }

  void expect_close(const Tensor& got, const Tensor& want, const char* what) const {
    const double scale = want.abs().max().item<double>() + 1e-30;
    EXPECT_LE((got - want).abs().max().item<double>() / scale, GetParam().tolerance) << what;
  }

  // Runs `fast` on parameters and `plain` on leaves with the same values; compares results, the
  // gradient by x, and what was added to each parameter's gradient (which did not start at zero).
  void compare(
      Tensor x, std::vector<Parameter> parameters, const std::function<Tensor(const Tensor&)>& fast,
      const std::function<Tensor(const Tensor&, const std::vector<Tensor>&)>& plain) const {
    std::vector<Tensor> leaves, before;
    for (const Parameter& p : parameters) {
      leaves.push_back(p.value.detach().to(at::kDouble, false, true).requires_grad_());
      before.push_back(p.gradient.clone());
    }
    Tensor x1 = x.clone().requires_grad_(), x2 = x.to(at::kDouble, false, true).requires_grad_();
    const Tensor y1 = fast(x1), y2 = plain(x2, leaves);
    expect_close(y1, y2, "result");
    const Tensor dy = random(y2.sizes());
    torch::autograd::backward({y1}, {dy});
    torch::autograd::backward({y2}, {dy.to(at::kDouble)});
    expect_close(x1.grad(), x2.grad(), "input gradient");
    for (size_t i = 0; i < parameters.size(); ++i) {
      expect_close(parameters[i].gradient, before[i] + leaves[i].grad(), "parameter gradient");
    }
  }
};

TEST_P(Kernels, LinearEqualsItsTwin) {
  const Parameter weight = parameter({24, 17}), bias = parameter({24});
  compare(
      random({37, 17}), {weight, bias}, [&](const Tensor& x) { return linear(x, weight, bias); },
      [](const Tensor& x, const auto& p) { return at::linear(x, p[0], p[1]); });
}

TEST_P(Kernels, FeedForwardEqualsItsTwin) {
  const Parameter up = parameter({40, 12}), up_bias = parameter({40}), down = parameter({12, 40}),
                  down_bias = parameter({12});
  compare(
      random({33, 12}), {up, up_bias, down, down_bias},
      [&](const Tensor& x) {
        return feed_forward(x, {up, up_bias, down, down_bias});
      },
      [](const Tensor& x, const auto& p) {
        return at::linear(at::relu(at::linear(x, p[0], p[1])), p[2], p[3]);
      });
}

TEST_P(Kernels, LayerNormEqualsItsTwin) {
  const Parameter weight = parameter({19}), bias = parameter({19});
  compare(
      random({21, 19}) * 3 + 1, {weight, bias},
      [&](const Tensor& x) { return layer_norm(x, weight, bias); },
      [](const Tensor& x, const auto& p) {
        const Tensor centred = x - x.mean(1, true);
        return centred / (centred.square().mean(1, true) + 1e-5).sqrt() * p[0] + p[1];
      });
}

TEST_P(Kernels, CausalAttentionEqualsItsTwin) {
  const int64_t rows = 3, context = 11, heads = 2, width = 8;
  compare(
      random({rows * context, 3 * width}), {},
      [&](const Tensor& x) { return causal_attention(x, rows, heads); },
      [&](const Tensor& x, const auto&) {
        const auto parts =
            x.view({rows, context, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
        const Tensor mask = at::ones({context, context}, at::kBool).tril();
        const Tensor scores =
            at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(double(width / heads));
        const Tensor mixed =
            at::matmul(at::softmax(scores.masked_fill(~mask, -1e30), -1), parts[2]);
        return mixed.transpose(1, 2).reshape({rows * context, width});
      });
}

TEST_P(Kernels, EmbeddingEqualsItsTwin) {
  const Tensor tokens = at::randint(0, 9, {50}, at::kLong),
               positions = at::randint(0, 5, {50}, at::kLong);
  const Parameter words = parameter({9, 6}), places = parameter({5, 6});
  compare(
      random({50, 6}), {words, places},
      [&](const Tensor& x) { return x + embed(tokens, positions, words, places, x); },
      [&](const Tensor& x, const auto& p) {
        return x + at::embedding(p[0], tokens) + at::embedding(p[1], positions);
      });
}

TEST_P(Kernels, NextTokenLossEqualsItsTwin) {
  // 150 rows of 20000 words: several chunks, the last one short.
  const int64_t rows = 150, vocabulary = 20000, width = 5;
  const Parameter embedding = parameter({vocabulary, width});
  Tensor targets = at::randint(0, vocabulary, {rows}, at::kLong);
  targets[3] = -100;
  targets[rows - 1] = -1;
  const Tensor hidden = random({rows, width});
  Tensor leaf = embedding.value.to(at::kDouble, false, true).requires_grad_();
  Tensor hidden_leaf = hidden.detach().to(at::kDouble, false, true).requires_grad_();
  const Tensor before = embedding.gradient.clone();
  const Tensor expected = at::cross_entropy_loss(at::linear(hidden_leaf, leaf), targets, {},
                                                 at::Reduction::None, kIgnoredTarget);
  expected.sum().mul(0.25).backward();

  const auto [losses, gradient] = next_token_losses_and_gradient(hidden, embedding, targets, 0.25);
  expect_close(losses, expected, "losses");
  expect_close(gradient, hidden_leaf.grad(), "hidden gradient");
  expect_close(embedding.gradient, before + leaf.grad(), "embedding gradient");
  EXPECT_TRUE(losses[3].item<double>() == 0 && gradient[3].abs().max().item<double>() == 0);
  expect_close(next_token_losses(hidden, embedding.value, targets), expected, "losses alone");
}

TEST_P(Kernels, CrossEntropySurvivesHugeLogits) {
  Tensor logits = at::tensor({1e4, -1e4, 0.0, 1e4}, at::kDouble).to(GetParam().dtype).view({1, 4});
  const Tensor loss = softmax_cross_entropy_(logits, at::zeros({1}, at::kLong), 1.0);
  EXPECT_NEAR(loss.item<double>(), std::log(2.0), 1e-6);
  EXPECT_NEAR(logits[0][0].item<double>(), -0.5, 1e-6);
}

TEST_P(Kernels, CrossEntropyRefusesTargetsOutsideTheVocabulary) {
  Tensor logits = random({2, 4});
  EXPECT_THROW(softmax_cross_entropy_(logits, at::tensor({0, 4}, at::kLong), 1.0), c10::Error);
}

TEST_P(Kernels, AdamEqualsItsFormula) {
  const Tensor start = random({1000}), gradient = random({1000});
  AdamBuffers b{start.clone(), {}, gradient, at::zeros_like(start), at::zeros_like(start)};
  b.master = b.working;
  const AdamSettings s{
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .weight_decay = 0.1};
  Tensor w = start.to(at::kDouble), m = at::zeros_like(w), v = at::zeros_like(w);
  const Tensor g = gradient.to(at::kDouble) * 0.5;
  for (int64_t step = 1; step <= 5; ++step) {
    AdamSettings now = s;
    now.step = step;
    adam_(b, now, at::scalar_tensor(0.5, gradient.options()));
    m = 0.9 * m + 0.1 * g;
    v = 0.98 * v + 0.02 * g * g;
    const Tensor corrected = (v / (1 - std::pow(0.98, step))).sqrt();
    w = w - 0.01 * (m / (1 - std::pow(0.9, step)) / (corrected + 1e-8) + 0.1 * w);
  }
  expect_close(b.master.to(at::kDouble), w, "weights");
}

TEST_P(Kernels, AdamChangesNothingWhenTheScaleIsNotFinite) {
  const Tensor start = random({100});
  AdamBuffers b{start.clone(), {}, random({100}), at::zeros_like(start), at::zeros_like(start)};
  b.master = b.working;
  adam_(b, {.learning_rate = 1, .epsilon = 1}, at::scalar_tensor(std::nan(""), start.options()));
  EXPECT_TRUE(at::equal(b.master, start));
  EXPECT_EQ(b.second_moment.abs().max().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels,
                         ::testing::Values(Case{at::kDouble, 1e-12}, Case{at::kFloat, 5e-6}),
                         [](const auto& info) { return std::string(toString(info.param.dtype)); });

}  // namespace
}  // namespace ballast
