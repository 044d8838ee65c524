// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

void expect_counted(const at::Tensor& expert, int64_t experts) {
  const auto [rank, loads] = expert_ranks(expert, experts);
  const at::Tensor host = expert.cpu(), ranks = rank.cpu(), counted = loads.cpu();
  for (int64_t group = 0; group < host.size(0); ++group) {
    std::vector<int64_t> seen(static_cast<size_t>(experts) + 1);
    for (int64_t i = 0; i < host.size(1); ++i) {
      const auto e = static_cast<size_t>(host[group][i].item<int64_t>());
      EXPECT_EQ(ranks[group][i].item<int64_t>(), seen[e]++) << "choice " << i;
    }
    for (int64_t e = 0; e < experts; ++e)
      EXPECT_EQ(counted[group][e].item<int64_t>(), seen[static_cast<size_t>(e)]);
  }
}

void expect_all_cases_counted(at::Device device) {
  at::manual_seed(3);
  expect_counted(at::randint(0, 4, {3, 17}, at::kLong).to(device), 3);  // 3: none
  expect_counted(at::randint(0, 40, {2, 300}, at::kLong).to(device), 40);
  expect_counted(at::randint(0, 6, {3, 1500}, at::kLong).to(device), 5);
  expect_counted(at::zeros({2, 9}, at::kLong).to(device), 5);
  expect_counted(at::full({1, 9}, 5, at::kLong).to(device), 5);
  expect_counted(at::zeros({2, 0}, at::kLong).to(device), 5);
}

TEST(ExpertRanks, CountThoseBefore) { expect_all_cases_counted(at::kCPU); }

TEST(ExpertRanksCuda, CountThoseBefore) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_all_cases_counted(at::kCUDA);
}

TEST(ExpertRanks, RefuseAnExpertThatIsNotThere) {
  EXPECT_THROW(expert_ranks(at::full({1, 1}, 6, at::kLong), 5), c10::Error);
  EXPECT_THROW(expert_ranks(at::full({1, 1}, -1, at::kLong), 5), c10::Error);
  EXPECT_THROW(expert_ranks(at::zeros({4}, at::kLong), 5), c10::Error);
}

}  // namespace
}  // namespace ballast::experts
