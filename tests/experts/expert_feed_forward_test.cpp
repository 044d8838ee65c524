// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_mlp.h"
#include "tests/experts/expert_stack_cases.h"
#include "tests/support/gradient_check.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// Who knows how many rows each expert has.
enum class Known { kToHost, kToDevice, kToBoth };

struct ExpertFeedForward : StackOfExperts {
  ExpertRows rows_of(const Loads& loads, Known known) const {
    if (known == Known::kToHost) return loads;
    const Tensor ends =
        at::tensor(loads, at::kLong).cumsum(0).to(at::Device(GetParam().device), at::kInt);
    return known == Known::kToDevice ? ExpertRows(ends) : ExpertRows(ends, loads);
  }

  void compare_with_twin(const Loads& loads, int64_t width, int64_t inner, Units units,
                         Known known = Known::kToHost) const {
    SCOPED_TRACE(::testing::PrintToString(loads));
    const auto spaced = spaced_weights(static_cast<int64_t>(loads.size()), width, inner, units);
    std::vector<kernels::Parameter> weights;
    std::vector<Tensor> leaves, before;
    for (const SpacedParameter& w : spaced) {
      weights.push_back(w.parameter);
      leaves.push_back(exact(w.parameter.value).requires_grad_());
      before.push_back(exact(w.parameter.gradient));
    }
    const Tensor x = random({total(loads), width}) * 3 + 1, dy = random(x.sizes());
    Tensor x1 = x.clone().requires_grad_(), x2 = exact(x).requires_grad_();
    const Tensor y1 = expert_feed_forward(x1, rows_of(loads, known), expert_weights(weights));
    const Tensor y2 = plain_expert_feed_forward(x2, loads, leaves);
    expect_close(y1, y2, "result");
    torch::autograd::backward({y1}, {dy});
    torch::autograd::backward({y2}, {exact(dy)});
    expect_close(x1.grad(), x2.grad(), "input gradient");
    for (size_t i = 0; i < spaced.size(); ++i) {
      expect_close(weights[i].gradient, before[i] + leaves[i].grad(), kExpertWeightNames[i]);
      spaced[i].expect_gaps_untouched();
    }
  }
};

TEST_P(ExpertFeedForward, EqualsItsTwin) {
  const Units units = GetParam().dtype == at::kBFloat16 ? Units::kFarFromZero : Units::kAnywhere;
  for (const Known known : {Known::kToHost, Known::kToDevice, Known::kToBoth}) {
    SCOPED_TRACE(static_cast<int>(known));
    for (const Loads& loads : expert_loads()) compare_with_twin(loads, 24, 56, units, known);
  }
}

// Rows, and then matrices, that are no multiples of 16 bytes.
TEST_P(ExpertFeedForward, TakesOddSizes) {
  const Units units = GetParam().dtype == at::kBFloat16 ? Units::kFarFromZero : Units::kAnywhere;
  for (const Known known : {Known::kToHost, Known::kToDevice}) {
    compare_with_twin({7, 20, 1, 9}, 25, 56, units, known);
    compare_with_twin({7, 20, 1, 9}, 24, 51, units, known);
  }
}

// More experts than one kernel's arguments hold, few of them with rows.
TEST_P(ExpertFeedForward, TakesManyExperts) {
  const Units units = GetParam().dtype == at::kBFloat16 ? Units::kFarFromZero : Units::kAnywhere;
  Loads loads(700, 0);
  for (size_t e = 0; e < loads.size(); e += 3) loads[e] = static_cast<int64_t>(e % 5);
  for (const Known known : {Known::kToHost, Known::kToDevice})
    compare_with_twin(loads, 8, 16, units, known);
}

// Sizes from which a GPU computes each expert's first product by itself.
struct LargeExpertFeedForward : ExpertFeedForward {};

TEST_P(LargeExpertFeedForward, EqualsItsTwin) {
  compare_with_twin({1280, 1280}, 512, 8192, Units::kFarFromZero);
  compare_with_twin({2400, 160}, 512, 8192, Units::kFarFromZero);
}

TEST_P(ExpertFeedForward, LeavesOutGradientsThatAreNotWanted) {
  const Loads loads{5, 5};
  std::vector<kernels::Parameter> weights;
  for (const auto& shape : weight_shapes(2, 8, 16)) weights.push_back({random(shape), {}});
  const kernels::Parameter& wanted =
      weights[2] = {weights[2].value, at::zeros_like(weights[2].value)};
  Tensor x = random({10, 8}).requires_grad_();
  const Tensor y = expert_feed_forward(x, loads, expert_weights(weights));
  torch::autograd::backward({y}, {at::ones_like(y)});
  EXPECT_GT(wanted.gradient.abs().max().item<double>(), 0);
  EXPECT_GT(x.grad().abs().max().item<double>(), 0);
}

// Equal loads and unequal ones; an expert without rows has a gradient of zeros.
TEST_P(ExpertFeedForward, WritesTheGradientsOfMatricesIfAsked) {
  for (const Loads& loads : {Loads{8, 8}, Loads{11, 0}}) {
    std::vector<kernels::Parameter> added, written;
    for (const auto& shape : weight_shapes(2, 8, 16)) {
      const Tensor value = random(shape);
      added.push_back({value, at::zeros_like(value)});
      written.push_back(
          {value, shape.size() == 3 ? at::full_like(value, NAN) : at::zeros_like(value)});
    }
    const Tensor rows = random({total(loads), 8}), dy = random({total(loads), 8});
    const auto run = [&](const std::vector<kernels::Parameter>& weights,
                         MatrixGradients gradients) {
      const Tensor x = rows.clone().requires_grad_();
      torch::autograd::backward({expert_feed_forward(x, loads, expert_weights(weights), gradients)},
                                {dy});
    };
    run(added, MatrixGradients::kAdded);
    run(written, MatrixGradients::kWritten);
    for (size_t i = 0; i < added.size(); ++i)
      expect_close(written[i].gradient, added[i].gradient, kExpertWeightNames[i]);
  }
}

TEST_P(ExpertFeedForward, RefusesRowsAndWeightsThatDoNotFit) {
  std::vector<kernels::Parameter> weights;
  for (const auto& shape : weight_shapes(2, 8, 16)) weights.push_back({random(shape), {}});
  const Tensor x = random({5, 8});
  EXPECT_THROW(expert_feed_forward(x, {2, 2}, expert_weights(weights)), c10::Error);
  EXPECT_THROW(expert_feed_forward(x, {6, -1}, expert_weights(weights)), c10::Error);
  EXPECT_THROW(expert_feed_forward(x, {2, 2, 1}, expert_weights(weights)), c10::Error);
  const Tensor ends = longs({2, 5});
  EXPECT_THROW(expert_feed_forward(x, ExpertRows(ends), expert_weights(weights)), c10::Error);
  EXPECT_THROW(
      expert_feed_forward(x, ExpertRows(ends.to(at::kInt), {2, 2}), expert_weights(weights)),
      c10::Error);
  EXPECT_THROW(expert_feed_forward(random({5, 7}), {2, 3}, expert_weights(weights)), c10::Error);
  std::swap(weights[0], weights[3]);
  EXPECT_THROW(expert_feed_forward(x, {2, 3}, expert_weights(weights)), c10::Error);
}

TEST(ExpertFeedForwardGradient, EqualsCentralDifferences) {
  at::manual_seed(3);
  const Loads loads{3, 0, 4};
  std::vector<kernels::Parameter> weights;
  for (const auto& shape : weight_shapes(3, 5, 7)) {
    weights.push_back({at::randn(shape, at::kDouble), at::zeros(shape, at::kDouble)});
  }
  Tensor x = at::randn({7, 5}, at::kDouble).requires_grad_();
  const Tensor direction = at::randn({7, 5}, at::kDouble);
  const auto loss = [&] {
    return (expert_feed_forward(x, loads, expert_weights(weights)) * direction).sum();
  };
  loss().backward();
  const auto number = [&] { return loss().item<double>(); };
  test::expect_gradient(x.detach(), x.grad(), number, "x");
  for (size_t i = 0; i < weights.size(); ++i) {
    test::expect_gradient(weights[i].value, weights[i].gradient, number, kExpertWeightNames[i]);
  }
  std::vector<Tensor> once;
  for (const kernels::Parameter& w : weights) once.push_back(w.gradient.clone());
  loss().backward();
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(weights[i].gradient, 2 * once[i], 1e-13)) << kExpertWeightNames[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ExpertFeedForward, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, ExpertFeedForward, cuda_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, LargeExpertFeedForward, cuda_cases(), case_name);

}  // namespace
}  // namespace ballast::experts
