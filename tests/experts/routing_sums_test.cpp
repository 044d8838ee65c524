// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;

double at_place(const Tensor& sums, RoutingSum which) { return sums[which].item<double>(); }

// Counts are exact; sums of some thousand numbers about one, in another order, are near.
constexpr double kNear = 1e-10;

void expect_assignments_added(at::Device device, at::ScalarType type) {
  at::manual_seed(8);
  for (const auto& [tokens, groups, experts, of_token] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {1, 1, 1, 1}, {40, 2, 5, 2}, {5000, 3, 33, 1}, {70, 40, 1500, 3}}) {
    const Tensor weights = at::rand({tokens, of_token}, at::kDouble).to(type);
    const Tensor best = at::randint(0, 3, {tokens}, at::kInt),
                 expert = at::randint(0, 3, {tokens}, at::kInt);
    const Tensor prices = at::randn({groups * of_token, experts}, at::kDouble);
    const Tensor sums = at::zeros({kRoutingSums + experts}, at::kDouble).to(device);
    add_seen(sums, SeenAssignment{weights.to(device), best.to(device), expert.to(device),
                                  prices.to(device)});
    add_seen(sums, SeenAssignment{weights.to(device), best.to(device), expert.to(device), {}});
    const Tensor got = sums.cpu();
    EXPECT_EQ(at_place(got, kSumOfTokens), 2 * tokens);
    EXPECT_EQ(at_place(got, kSumOfGroups), groups * of_token) << "of those with prices";
    EXPECT_EQ(at_place(got, kSumOfBest), 2 * best.eq(expert).sum().item<int64_t>());
    EXPECT_NEAR(at_place(got, kSumOfGates),
                2 * weights.select(1, 0).to(at::kDouble).sum().item<double>(), kNear);
    for (const RoutingSum other : {kSumOfChoices, kSumOfDropped, kSumOfPassedBy, kSumOfBalance})
      EXPECT_EQ(at_place(got, other), 0);
    const Tensor expected = (prices - prices.mean(1, /*keepdim=*/true)).sum(0);
    EXPECT_LE((got.narrow(0, kRoutingSums, experts) - expected).abs().max().item<double>(), kNear);
  }
}

void expect_gates_added(at::Device device, at::ScalarType type) {
  at::manual_seed(9);
  for (const auto& [tokens, groups, of_token] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {40, 2, 2}, {5000, 1100, 1}}) {
    const int64_t experts = 4;
    const Tensor weights = at::rand({tokens, of_token}, at::kDouble).to(type);
    const Tensor expert = at::randint(0, experts + 1, {tokens, of_token}, at::kLong);
    const Tensor has_place = expert.lt(experts).logical_and(at::rand({tokens, of_token}).lt(0.7));
    const Tensor slot = at::where(has_place, at::full_like(expert, 3), at::full_like(expert, -1));
    const Tensor losses = at::rand({groups}, at::kDouble);
    const Tensor sums = at::zeros({kRoutingSums}, at::kDouble).to(device);
    for (int i = 0; i < 2; ++i) {
      add_seen(sums, SeenGates{.weights = weights.to(device),
                               .expert = expert.to(device),
                               .slot_of_row = slot.to(device),
                               .losses = losses.to(device),
                               .experts = experts});
    }
    const Tensor got = sums.cpu();
    const auto count = [](const Tensor& some) { return some.sum().item<int64_t>(); };
    EXPECT_EQ(at_place(got, kSumOfTokens), 2 * tokens);
    EXPECT_EQ(at_place(got, kSumOfGroups), 2 * groups);
    EXPECT_EQ(at_place(got, kSumOfChoices), 2 * count(expert.lt(experts)));
    EXPECT_EQ(at_place(got, kSumOfDropped), 2 * (count(expert.lt(experts)) - count(has_place)));
    EXPECT_EQ(at_place(got, kSumOfPassedBy), 2 * (tokens - count(has_place.any(1))));
    EXPECT_EQ(at_place(got, kSumOfBest), 0);
    EXPECT_NEAR(at_place(got, kSumOfBalance), 2 * losses.sum().item<double>(), kNear);
    EXPECT_NEAR(at_place(got, kSumOfGates),
                2 * weights.select(1, 0).to(at::kDouble).sum().item<double>(), kNear);
  }
}

TEST(RoutingSums, TakeAssignments) {
  expect_assignments_added(at::kCPU, at::kFloat);
  expect_assignments_added(at::kCPU, at::kDouble);
}

TEST(RoutingSums, TakeGates) {
  expect_gates_added(at::kCPU, at::kFloat);
  expect_gates_added(at::kCPU, at::kDouble);
}

TEST(RoutingSumsCuda, TakeAssignments) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_assignments_added(at::kCUDA, at::kFloat);
  expect_assignments_added(at::kCUDA, at::kDouble);
}

TEST(RoutingSumsCuda, TakeGates) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_gates_added(at::kCUDA, at::kFloat);
  expect_gates_added(at::kCUDA, at::kDouble);
}

}  // namespace
}  // namespace ballast::experts
