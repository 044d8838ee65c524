// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/chosen_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using config::Gate;

struct Shape {
  int64_t tokens, experts, of_token;
};

const std::vector<Shape> kShapes = {{1, 1, 1},   {7, 4, 1},     {7, 4, 2}, {65, 33, 1},
                                    {65, 33, 3}, {300, 128, 2}, {0, 8, 1}, {9, 1000, 1}};

constexpr ChosenGate kGates[] = {
    {Gate::kSoftmax, true}, {Gate::kSoftmax, false}, {Gate::kSigmoid, true}};

Tensor plain_weights(const Tensor& affinities, const Tensor& expert, const ChosenGate& gate) {
  const Tensor chosen = affinities.gather(1, expert.t());  // [T, K]
  if (gate.gate == Gate::kSigmoid) return at::sigmoid(chosen);
  if (expert.size(0) > 1 && gate.renormalise) return at::softmax(chosen, 1);
  return at::softmax(affinities, 1).gather(1, expert.t());
}

// Against plain operations in double; `bound` is of a few roundings, relative to one.
void expect_as_plain(const at::TensorOptions& options, double bound) {
  for (const Shape& shape : kShapes) {
    for (const ChosenGate& gate : kGates) {
      SCOPED_TRACE(testing::Message() << shape.tokens << " tokens, " << shape.experts
                                      << " experts, " << shape.of_token << " of a token");
      at::manual_seed(3);
      const Tensor given = (at::randn({shape.tokens, shape.experts}, at::kDouble) * 3)
                               .to(options)
                               .to(at::kCPU, at::kDouble);
      const Tensor expert = at::rand({shape.tokens, shape.experts})
                                .argsort(1, /*descending=*/false)
                                .narrow(1, 0, shape.of_token)
                                .t();
      const Tensor dy = at::randn({shape.tokens, shape.of_token}, at::kDouble)
                            .to(options)
                            .to(at::kCPU, at::kDouble);
      Tensor a = given.clone().to(options).requires_grad_(), b = given.clone().requires_grad_();
      const Tensor got = chosen_weights(a, expert.to(options.device()), gate),
                   expected = plain_weights(b, expert, gate);
      ASSERT_EQ(got.sizes(), expected.sizes());
      if (shape.tokens == 0) continue;
      EXPECT_LE((got.cpu().to(at::kDouble) - expected).abs().max().item<double>(), bound);
      torch::autograd::backward({got}, {dy.to(options)});
      torch::autograd::backward({expected}, {dy});
      EXPECT_LE((a.grad().cpu().to(at::kDouble) - b.grad()).abs().max().item<double>(), 4 * bound);
    }
  }
}

TEST(ChosenWeights, EqualTheirTwin) {
  expect_as_plain(at::kDouble, 1e-14);
  expect_as_plain(at::kFloat, 0x1p-21);
}

// The gradient of what tokens take, and of a loss beside that is linear in their probabilities.
void expect_balance_added(const at::TensorOptions& options, double bound) {
  for (const Shape& shape : {Shape{6, 4, 1}, {6, 4, 2}, {130, 33, 1}, {300, 128, 2}}) {
    for (const ChosenGate& gate : kGates) {
      SCOPED_TRACE(testing::Message() << shape.tokens << " tokens, " << shape.experts
                                      << " experts, " << shape.of_token << " of a token");
      at::manual_seed(4);
      const Tensor given = at::randn({shape.tokens, shape.experts}, at::kDouble)
                               .to(options)
                               .to(at::kCPU, at::kDouble);
      const Tensor expert = at::rand({shape.tokens, shape.experts})
                                .argsort(1, /*descending=*/false)
                                .narrow(1, 0, shape.of_token)
                                .t();
      const Tensor balance = at::rand({2, shape.experts}, at::kDouble);  // of two groups
      Tensor a = given.clone().to(options).requires_grad_(), b = given.clone().requires_grad_();
      chosen_weights(a, expert.to(options.device()), gate, balance.to(options.device()))
          .sum()
          .backward();
      const Tensor probabilities = at::softmax(b, 1).view({2, -1, shape.experts});
      (plain_weights(b, expert, gate).sum() + (probabilities * balance.unsqueeze(1)).sum())
          .backward();
      EXPECT_LE((a.grad().cpu().to(at::kDouble) - b.grad()).abs().max().item<double>(), 4 * bound);
    }
  }
}

TEST(ChosenWeights, AddTheGradientOfALossBeside) {
  expect_balance_added(at::kDouble, 1e-14);
  expect_balance_added(at::kFloat, 0x1p-21);
}

TEST(ChosenWeights, SurviveHugeAffinities) {
  const Tensor affinities = at::tensor({-1e4, 1e4, 0.0}, at::kFloat).view({1, 3});
  const auto weight = [&](int64_t expert, const ChosenGate& gate) {
    return chosen_weights(affinities, at::full({1, 1}, expert, at::kLong), gate).item<double>();
  };
  for (const ChosenGate& gate : kGates) {
    EXPECT_EQ(weight(0, gate), 0);
    EXPECT_EQ(weight(1, gate), 1);
  }
}

TEST(ChosenWeights, RefuseWhatDoesNotFit) {
  const Tensor affinities = at::zeros({4, 3});
  EXPECT_THROW(chosen_weights(affinities, at::zeros({1, 5}, at::kLong), {}), c10::Error);
  EXPECT_THROW(chosen_weights(affinities, at::zeros({1, 4}, at::kInt), {}), c10::Error);
  EXPECT_THROW(chosen_weights(affinities.to(at::kBFloat16), at::zeros({1, 4}, at::kLong), {}),
               c10::Error);
  const Tensor expert = at::zeros({1, 4}, at::kLong);
  for (const Tensor& balance : {at::zeros({3, 3}, at::kDouble), at::zeros({2, 4}, at::kDouble),
                                at::zeros({2, 3}, at::kFloat)})
    EXPECT_THROW(chosen_weights(affinities, expert, {}, balance), c10::Error);
}

// exp is the GPU's fast one, good to 2^-21 of its result.
TEST(ChosenWeightsCuda, EqualTheirTwin) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kDouble), 1e-14);
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kFloat), 0x1p-19);
}

TEST(ChosenWeightsCuda, AddTheGradientOfALossBeside) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_balance_added(at::TensorOptions(at::kCUDA).dtype(at::kDouble), 1e-14);
  expect_balance_added(at::TensorOptions(at::kCUDA).dtype(at::kFloat), 0x1p-19);
}

}  // namespace
}  // namespace ballast::experts
