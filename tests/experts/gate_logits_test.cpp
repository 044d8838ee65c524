// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_logits.h"

#include "tests/experts/expert_cases.h"
#include "tests/support/gradient_check.h"

namespace ballast::experts {
namespace {

using at::Tensor;

TEST(GateLogits, AreAProductWithAGradient) {
  at::manual_seed(1);
  Tensor x = at::randn({7, 5}, at::kDouble).requires_grad_();
  const kernels::Parameter weight{at::randn({3, 5}, at::kDouble), at::ones({3, 5}, at::kDouble)};
  const Tensor dy = at::randn({7, 3}, at::kDouble);
  const auto loss = [&] { return (at::mm(x, weight.value.t()) * dy).sum().item<double>(); };
  const Tensor y = gate_logits(x, weight);
  EXPECT_LE((y - at::mm(x, weight.value.t())).abs().max().item<double>(), 1e-14);
  torch::autograd::backward({y}, {dy});
  test::expect_gradient(x, x.grad(), loss, "x");
  test::expect_gradient(weight.value, weight.gradient - 1, loss, "weight: added to what was there");
}

void expect_fp32_of_half_precision(at::Device device, int64_t experts) {
  at::manual_seed(2);
  const auto options = at::device(device).dtype(at::kBFloat16);
  Tensor x = at::randn({9, 64}, options).requires_grad_();
  const kernels::Parameter weight{at::randn({experts, 64}, options),
                                  at::ones({experts, 64}, options)};
  const Tensor y = gate_logits(x, weight);
  ASSERT_EQ(y.scalar_type(), at::kFloat);
  const Tensor exact = at::mm(x.to(at::kDouble), weight.value.to(at::kDouble).t());
  EXPECT_LE((y - exact).abs().max().item<double>(), 1e-5);  // fp32: 64 terms of size about 1
  const Tensor dy = at::randn({9, experts}, at::device(device));
  torch::autograd::backward({y}, {dy});
  ASSERT_EQ(x.grad().scalar_type(), at::kBFloat16);
  const Tensor wide = dy.to(at::kDouble);
  const auto expect_rounded = [](const Tensor& got, const Tensor& product) {  // once, to bf16
    EXPECT_LE((got - product).abs().max().item<double>(),
              0x1p-8 * product.abs().max().item<double>());
  };
  expect_rounded(x.grad(), at::mm(wide, weight.value.to(at::kDouble)));
  expect_rounded(weight.gradient, at::mm(wide.t(), x.detach().to(at::kDouble)) + 1);
}

TEST(GateLogits, OfHalfPrecisionAreInFp32) { expect_fp32_of_half_precision(at::kCPU, 4); }

TEST(GateLogitsCuda, OfHalfPrecisionAreInFp32) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  for (const int64_t experts : {4, 5, 128}) expect_fp32_of_half_precision(at::kCUDA, experts);
}

}  // namespace
}  // namespace ballast::experts
