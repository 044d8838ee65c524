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
#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

class Kernels : public test::Twins {};

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

TEST_P(Kernels, ABiasIsAddedAfterALinearMapWithoutOne) {
  const Parameter weight = parameter({24, 17}), bias = parameter({24});
  compare(
      random({37, 17}), {weight, bias},
      [&](const Tensor& x) { return add_bias(linear(x, weight, {}), bias); },
      [](const Tensor& x, const auto& p) { return at::linear(x, p[0], p[1]); });
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
      [&](const Tensor& x) {
        return causal_attention(x, rows, {heads, heads, width / heads});
      },
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
  const Tensor tokens = at::randint(0, 9, {50}, longs()),
               positions = at::randint(0, 5, {50}, longs());
  const Parameter words = parameter({9, 6}), places = parameter({5, 6});
  compare(
      random({50, 6}), {words, places},
      [&](const Tensor& x) { return x + embed(tokens, positions, words, places, x); },
      [&](const Tensor& x, const auto& p) {
        return x + at::embedding(p[0], tokens.cpu()) + at::embedding(p[1], positions.cpu());
      });
}

TEST_P(Kernels, LookingUpInAPartOfATableEqualsItsTwin) {
  const Tensor indices = at::randint(0, 20, {50}, longs());
  const Parameter part = parameter({6, 4});  // rows 7 to 12 of 20
  compare(
      random({50, 4}), {part}, [&](const Tensor& x) { return x + look_up(indices, 7, part, x); },
      [&](const Tensor& x, const auto& p) {
        const Tensor all = at::cat({at::zeros({7, 4}), p[0], at::zeros({7, 4})});
        return x + at::embedding(all, indices.cpu());
      });
}

TEST_P(Kernels, ALookedUpRowIsZeroWhateverAPartHoldsInstead) {
  Parameter part{at::full({1, 3}, std::nan(""), random({1}).options()), {}};
  const Tensor zeros = look_up(at::tensor({0, 2}, longs()), 1, part, random({1}));
  EXPECT_EQ(zeros.abs().max().item<double>(), 0);
}

TEST_P(Kernels, NextTokenLossEqualsItsTwin) {
  // 150 rows of 20000 words: several chunks, the last one short.
  const int64_t rows = 150, vocabulary = 20000, width = 5;
  const Parameter embedding = parameter({vocabulary, width});
  Tensor targets = at::randint(0, vocabulary, {rows}, longs());
  targets[3] = -100;
  targets[rows - 1] = -1;
  const Tensor hidden = random({rows, width});
  Tensor leaf = exact(embedding.value).requires_grad_();
  Tensor hidden_leaf = exact(hidden).requires_grad_();
  const Tensor before = exact(embedding.gradient);
  const Tensor expected = at::cross_entropy_loss(
      at::linear(hidden_leaf, leaf), targets.cpu().clamp_min(-1), {}, at::Reduction::None, -1);
  expected.sum().mul(0.25).backward();

  const auto [losses, gradient] = next_token_losses_and_gradient(hidden, embedding, targets, 0.25);
  expect_close(losses, expected, "losses");
  expect_close(gradient, hidden_leaf.grad(), "hidden gradient");
  expect_close(embedding.gradient, before + leaf.grad(), "embedding gradient");
  EXPECT_TRUE(losses[3].item<double>() == 0 && gradient[3].abs().max().item<double>() == 0);
  expect_close(next_token_losses(hidden, embedding.value, targets), expected, "losses alone");
}

TEST_P(Kernels, CrossEntropySurvivesHugeLogits) {
  Tensor logits = at::tensor({1e4, -1e4, 0.0, 1e4}, at::kDouble)
                      .to(at::Device(GetParam().device), GetParam().dtype)
                      .view({1, 4});
  const auto wide = GetParam().dtype == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor loss = at::empty({1}, logits.options().dtype(wide));
  softmax_cross_entropy_(logits, at::zeros({1}, longs()), 1.0, loss);
  EXPECT_NEAR(loss.item<double>(), std::log(2.0), 1e-6);
  EXPECT_NEAR(logits[0][0].item<double>(), -0.5, 1e-6);
}

TEST_P(Kernels, CrossEntropyRefusesTargetsOutsideTheVocabulary) {
  // On a GPU the kernel's assertion would end the process's use of the device; batches check first.
  if (GetParam().device != at::kCPU) return;
  Tensor logits = random({2, 4});
  EXPECT_THROW(softmax_cross_entropy_(logits, at::tensor({0, 4}, longs()), 1.0, random({2})),
               c10::Error);
}

// The buffers of one group: bf16 weights have an fp32 master.
AdamBuffers adam_buffers(const Tensor& start, const Tensor& gradient) {
  const auto master = start.scalar_type() == at::kBFloat16 ? at::kFloat : start.scalar_type();
  AdamBuffers b{
      start.clone(), {}, gradient, at::zeros_like(start, master), at::zeros_like(start, master)};
  b.master = master == start.scalar_type() ? b.working : start.to(master);
  return b;
}

// Sizes that packs of four divide and do not, starting on a cache line and off it.
TEST_P(Kernels, AdamEqualsItsFormula) {
  for (const auto& [size, shift] : {std::pair{1000, 0}, {1003, 0}, {1003, 1}, {2, 0}, {0, 0}}) {
    const auto part = [&](const Tensor& flat) { return flat.narrow(0, shift, size); };
    const Tensor start = random({1010}), gradient = random({1010});
    const AdamBuffers whole = adam_buffers(start, gradient);
    const AdamBuffers b{part(whole.working), part(whole.master), part(whole.gradient),
                        part(whole.first_moment), part(whole.second_moment)};
    const AdamConstants constants{
        .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .weight_decay = 0.1};
    Tensor w = exact(start), m = at::zeros_like(w), v = at::zeros_like(w);
    const Tensor g = exact(gradient) * 0.5;
    for (int64_t step = 1; step <= 5; ++step) {
      adam_(b, constants, adam_numbers(constants, 0.01, step).to(GetParam().device),
            at::scalar_tensor(0.5, b.master.options()));
      m = 0.9 * m + 0.1 * g;
      v = 0.98 * v + 0.02 * g * g;
      const Tensor corrected = (v / (1 - std::pow(0.98, step))).sqrt();
      w = w - 0.01 * (m / (1 - std::pow(0.9, step)) / (corrected + 1e-8) + 0.1 * w);
    }
    part(start).copy_(part(w));  // the rest is not ours to change
    expect_close(whole.master, start, "weights");
    EXPECT_TRUE(at::equal(b.working, b.master.to(b.working.scalar_type())));
    EXPECT_TRUE(at::equal(exact(gradient) * 0.5, g)) << "a gradient changed that was to stay";
  }
}

TEST_P(Kernels, AdamClearsTheGradientInTheSamePass) {
  const AdamConstants keep{.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .weight_decay = 0.1};
  AdamConstants clear = keep;
  clear.clear = true;
  const Tensor start = random({70001}), gradient = random({70001});
  const AdamBuffers kept = adam_buffers(start, gradient.clone()),
                    cleared = adam_buffers(start, gradient.clone());
  const Tensor numbers = adam_numbers(keep, 0.01, 3).to(GetParam().device);
  const Tensor scale = at::scalar_tensor(0.5, kept.master.options());
  adam_(kept, keep, numbers, scale);
  adam_(cleared, clear, numbers, scale);
  EXPECT_TRUE(at::equal(kept.working, cleared.working));
  EXPECT_TRUE(at::equal(kept.second_moment, cleared.second_moment));
  EXPECT_TRUE(at::equal(kept.gradient, gradient));
  EXPECT_EQ(cleared.gradient.abs().max().item<double>(), 0);
}

TEST_P(Kernels, AdamChangesNothingButTheGradientWhenTheScaleIsNotFinite) {
  for (const bool clear : {false, true}) {
    const Tensor start = random({103}), gradient = random({103});
    const AdamBuffers b = adam_buffers(start, gradient.clone());
    const AdamConstants constants{.epsilon = 1, .clear = clear};
    adam_(b, constants, adam_numbers(constants, 1.0, 1).to(GetParam().device),
          at::scalar_tensor(std::nan(""), b.master.options()));
    EXPECT_TRUE(at::equal(b.working, start));
    EXPECT_EQ(b.second_moment.abs().max().item<double>(), 0);
    EXPECT_TRUE(at::equal(b.gradient, clear ? at::zeros_like(gradient) : gradient));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels, test::cpu_cases(), test::dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Kernels, test::cuda_cases(), test::dtype_name);

}  // namespace
}  // namespace ballast::kernels
