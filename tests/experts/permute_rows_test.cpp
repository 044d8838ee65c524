// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/spread_rows.h"
#include "tests/experts/expert_cases.h"

namespace ballast::experts {
namespace {

using at::Tensor;

struct PermuteRows : ExpertKernels {};

TEST_P(PermuteRows, TakesEachRowFromItsSource) {
  const Tensor x = random({4, 5}), dy = random({6, 5});
  Tensor leaf = x.clone().requires_grad_();
  const Tensor y = permute_rows(leaf, longs({2, -1, 0, -7, 3, -1}), longs({2, -1, 0, 4}));
  ASSERT_EQ(y.sizes(), at::IntArrayRef({6, 5}));
  EXPECT_TRUE(at::equal(y[0], x[2]) && at::equal(y[2], x[0]) && at::equal(y[4], x[3]));
  for (const int64_t row : {1, 3, 5}) EXPECT_EQ(y[row].abs().max().item<double>(), 0);
  torch::autograd::backward({y}, {dy});
  const Tensor dx = leaf.grad();
  EXPECT_TRUE(at::equal(dx[0], dy[2]) && at::equal(dx[2], dy[0]) && at::equal(dx[3], dy[4]));
  EXPECT_EQ(dx[1].abs().max().item<double>(), 0);  // stands nowhere
}

TEST_P(PermuteRows, ThenItsInverseIsTheIdentity) {
  const int64_t rows = 300;
  const Tensor order = at::randperm(rows, at::kLong), inverse = order.argsort();
  const Tensor there = order.to(GetParam().device), back = inverse.to(GetParam().device);
  const Tensor x = random({rows, 33}), dy = random({rows, 33});
  Tensor leaf = x.clone().requires_grad_();
  const Tensor y = permute_rows(permute_rows(leaf, there, back), back, there);
  EXPECT_TRUE(at::equal(y, x));
  torch::autograd::backward({y}, {dy});
  EXPECT_TRUE(at::equal(leaf.grad(), dy));
}

TEST_P(PermuteRows, OfNothingIsZerosOrNothing) {
  EXPECT_EQ(permute_rows(random({0, 3}), longs({-1, -1}), longs({})).abs().sum().item<double>(), 0);
  EXPECT_EQ(permute_rows(random({2, 3}), longs({}), longs({-1, -1})).size(0), 0);
}

TEST_P(PermuteRows, TakesRowsThatLieApart) {
  const Tensor x = random({3, 8}).narrow(1, 2, 4);
  const Tensor y = permute_rows(x, longs({2, 0, 1}), longs({1, 2, 0}));
  EXPECT_TRUE(at::equal(y[0], x[2]) && at::equal(y[1], x[0]) && at::equal(y[2], x[1]));
}

TEST_P(PermuteRows, RefusesWhatCannotBe) {
  const Tensor x = random({2, 3});
  EXPECT_THROW(permute_rows(x, longs({0}), longs({0})), c10::Error);  // N places are wanted
  EXPECT_THROW(permute_rows(x, longs({0}).to(at::kInt), longs({0, -1})), c10::Error);
  // On a GPU the kernel's assertion would end the process's use of the device.
  if (GetParam().device != at::kCPU) return;
  EXPECT_THROW(permute_rows(x, longs({2}), longs({0, -1})), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, PermuteRows, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, PermuteRows, cuda_cases(), case_name);

}  // namespace
}  // namespace ballast::experts
