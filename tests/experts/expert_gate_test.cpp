// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_mlp_paths.h"
#include "tests/experts/expert_cases.h"
#include "tests/support/gradient_check.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using Loads = std::vector<int64_t>;

constexpr int64_t kWidth = 24;

// The definition, expert by expert, in operations that autograd differentiates.
Tensor plain_gated_residual(const Tensor& h, const Tensor& stack, const Loads& rows_of_expert,
                            const Tensor& embeddings) {
  std::vector<Tensor> parts;
  int64_t row = 0;
  for (size_t e = 0; e < rows_of_expert.size(); row += rows_of_expert[e++]) {
    const Tensor h_e = h.narrow(0, row, rows_of_expert[e]),
                 f_e = stack.narrow(0, row, rows_of_expert[e]) - h_e;
    const Tensor gate = at::sigmoid(at::mv(h_e, embeddings[e]));
    parts.push_back(gate.unsqueeze(1) * f_e + h_e);
  }
  return at::cat(parts);
}

struct GatedResidual : ExpertKernels {};

TEST_P(GatedResidual, EqualsItsTwin) {
  for (const Loads& loads : expert_loads()) {
    SCOPED_TRACE(::testing::PrintToString(loads));
    const int64_t rows = total(loads), experts = static_cast<int64_t>(loads.size());
    const Tensor h = random({rows, kWidth}) * 0.5, stack = random({rows, kWidth}),
                 dy = random({rows, kWidth});
    const SpacedParameter w(random({experts, kWidth}) * 0.5, random({experts, kWidth}));
    Tensor h1 = h.clone().requires_grad_(), stack1 = stack.clone().requires_grad_();
    Tensor h2 = exact(h).requires_grad_(), stack2 = exact(stack).requires_grad_();
    Tensor w2 = exact(w.parameter.value).requires_grad_();
    const Tensor before = exact(w.parameter.gradient);
    const Tensor y1 = gated_residual(h1, stack1, loads, w.parameter);
    const Tensor y2 = plain_gated_residual(h2, stack2, loads, w2);
    expect_close(y1, y2, "result");
    torch::autograd::backward({y1}, {dy});
    torch::autograd::backward({y2}, {exact(dy)});
    expect_close(h1.grad(), h2.grad(), "gradient of h");
    expect_close(stack1.grad(), stack2.grad(), "gradient of stack");
    expect_close(w.parameter.gradient, before + w2.grad(), "gradient of the embeddings");
    w.expect_gaps_untouched();
  }
}

TEST_P(GatedResidual, SurvivesHugeScores) {
  const Tensor h = random({2, 1}).fill_(1e4), stack = h + 512, w = random({2, 1});
  w[0].fill_(-1e4);
  w[1].fill_(1e4);
  const Tensor y = gated_residual(h, stack, {1, 1}, {w, {}});
  EXPECT_EQ(y[0].item<double>(), h[0].item<double>());      // shut
  EXPECT_EQ(y[1].item<double>(), stack[1].item<double>());  // open
}

TEST_P(GatedResidual, RefusesRowsThatDoNotFit) {
  const Tensor h = random({5, kWidth});
  const kernels::Parameter w{random({2, kWidth}), {}};
  EXPECT_THROW(gated_residual(h, h, {2, 2}, w), c10::Error);
  EXPECT_THROW(gated_residual(h, h, {6, -1}, w), c10::Error);
  EXPECT_THROW(gated_residual(h, h, {2, 2, 1}, w), c10::Error);
  EXPECT_THROW(gated_residual(h, random({4, kWidth}), {2, 3}, w), c10::Error);
}

TEST(GatedResidualGradient, EqualsCentralDifferences) {
  at::manual_seed(2);
  const Loads loads{3, 0, 2};
  Tensor h = at::randn({5, 6}, at::kDouble).requires_grad_(),
         stack = at::randn({5, 6}, at::kDouble).requires_grad_();
  const kernels::Parameter w{at::randn({3, 6}, at::kDouble), at::zeros({3, 6}, at::kDouble)};
  const Tensor weights = at::randn({5, 6}, at::kDouble);
  const auto loss = [&] { return (gated_residual(h, stack, loads, w) * weights).sum(); };
  loss().backward();
  const auto number = [&] { return loss().item<double>(); };
  test::expect_gradient(h.detach(), h.grad(), number, "h");
  test::expect_gradient(stack.detach(), stack.grad(), number, "stack");
  test::expect_gradient(w.value, w.gradient, number, "embeddings");
  const Tensor once = w.gradient.clone();
  loss().backward();
  EXPECT_TRUE(at::allclose(w.gradient, 2 * once, 1e-14));  // two backwards add up
}

INSTANTIATE_TEST_SUITE_P(Cpu, GatedResidual, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, GatedResidual, cuda_cases(), case_name);

}  // namespace
}  // namespace ballast::experts
