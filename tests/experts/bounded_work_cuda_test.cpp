// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: the exact solver on scores that have collapsed, and with a limit on its
// work.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/experts/assigner.h"
#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;

class BoundedWorkCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    at::manual_seed(1);
  }
};

// A preference all tokens share, two sorts of tokens, and ever smaller parts of their own.
Tensor collapsed(int64_t tokens, int64_t experts) {
  const Tensor strengths = at::tensor({1.0, 2e-2, 3e-3, 1e-3, 5e-4, 3e-4, 2e-4, 1e-4}, at::kFloat);
  Tensor own = at::randn({tokens, 8});
  const Tensor first = own.select(1, 0).clone();
  own.select(1, 0).copy_(
      at::where(at::rand({tokens}) < 0.7, -0.65 + 0.01 * first, 1.5 + 0.03 * first));
  return 2 * at::randn({1, experts}) + at::matmul(own * strengths, at::randn({8, experts}));
}

double magnitude_of(const Tensor& scores) {
  return scores.to(at::kDouble).abs().amax(1).sum().item<double>();
}

// What the result says of itself, found again on the CPU in double.
void expect_true_status(const Tensor& scores, const TensorAssignment& result) {
  const assignment::AssignmentStatus status = read_status(result)[0];
  const Tensor exact = scores.to(at::kDouble);
  const Tensor chosen = result.expert_of_token.cpu().to(at::kLong);
  const Tensor prices = result.prices.cpu();
  const double rounding = 1e-9 * magnitude_of(scores);  // of sums in another order
  EXPECT_EQ(status.valid, 1);
  EXPECT_NEAR(status.primal, exact.gather(1, chosen.unsqueeze(1)).sum().item<double>(), rounding);
  const auto share = static_cast<double>(scores.size(0)) / static_cast<double>(scores.size(1));
  const double dual =
      (exact - prices).amax(1).sum().item<double>() + share * prices.sum().item<double>();
  EXPECT_NEAR(status.dual, dual, rounding);
  EXPECT_NEAR(status.gap, status.dual - status.primal, rounding);
  const Tensor order = at::argsort(chosen, /*stable=*/true, 0, false);
  EXPECT_TRUE(at::equal(result.tokens_by_expert.cpu().to(at::kLong), order));
  EXPECT_TRUE(at::equal(result.place_of_token.cpu().to(at::kLong), at::argsort(order)));
  EXPECT_TRUE(at::equal(result.loads.cpu(), at::full({scores.size(1)}, share, at::kInt)));
}

TEST_F(BoundedWorkCuda, CollapsedScoresAreSolvedAsOnTheCpu) {
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{4096, 32},
                                        {32768, 32},
                                        {4000, 100},
                                        {16384, 128},
                                        {4096, 256},
                                        {4096, 512}}) {
    SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts));
    const Tensor scores = collapsed(tokens, experts);
    Assigner assigner({});
    const auto got = assigner.assign(scores.cuda()), want = assigner.assign(scores);
    EXPECT_EQ(read_status(got)[0].code, assignment::AssignmentStatus::kOk);
    expect_true_status(scores, got);
    EXPECT_NEAR(read_status(got)[0].primal, read_status(want)[0].primal,
                1e-9 * magnitude_of(scores));
  }
}

TEST_F(BoundedWorkCuda, AnAssignmentThatIsNotOptimalIsValidAndKnowsItsGap) {
  for (const auto& [tokens, experts] :
       {std::pair<int64_t, int64_t>{64, 8}, {4096, 32}, {4000, 100}, {16384, 128}, {2048, 512}}) {
    const Tensor scores = collapsed(tokens, experts);
    Assigner assigner({});
    const double optimum = read_status(assigner.assign(scores))[0].primal;
    const double rounding = 1e-9 * magnitude_of(scores);
    for (const int64_t work : {1, 1 << 16, 1 << 19, 1 << 22}) {
      SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts) + ", work " +
                   std::to_string(work));
      const auto got = Assigner({.max_work = work}).assign(scores.cuda());
      expect_true_status(scores, got);
      const assignment::AssignmentStatus status = read_status(got)[0];
      EXPECT_LE(status.primal, optimum + rounding);
      EXPECT_GE(status.dual, optimum - rounding);
      if (status.code == assignment::AssignmentStatus::kOk) {
        EXPECT_LE(status.gap, rounding);
      } else {
        EXPECT_EQ(status.code, assignment::AssignmentStatus::kNotConverged);
      }
    }
  }
}

// More experts than the on-chip solver takes, which such a bound does not concern.
TEST_F(BoundedWorkCuda, LittleWorkDoesNotReachTheOptimum) {
  const auto got = Assigner({.max_work = 1}).assign(collapsed(4096, 256).cuda());
  EXPECT_EQ(read_status(got)[0].code, assignment::AssignmentStatus::kNotConverged);
  EXPECT_GT(read_status(got)[0].gap, 0);
}

TEST_F(BoundedWorkCuda, PaddingAndUnevenSharesAreKept) {
  const int64_t tokens = 3001, experts = 48;
  const Tensor scores = collapsed(tokens, experts), counted = at::rand({tokens}) < 0.8;
  assignment::LoadBounds bounds;
  for (int32_t e = 0; e < experts; ++e) {
    bounds.lower.push_back(e % 3 == 0 ? 60 : 10);
    bounds.upper.push_back(e % 3 == 0 ? 60 : 80);
  }
  const auto optimum =
      read_status(Assigner({.bounds = bounds}).assign(scores, {.counted = counted}))[0];
  for (const int64_t work : {1, 1 << 19}) {
    const auto got = Assigner({.bounds = bounds, .max_work = work})
                         .assign(scores.cuda(), {.counted = counted.cuda()});
    const assignment::AssignmentStatus status = read_status(got)[0];
    const double rounding = 1e-9 * magnitude_of(scores);
    EXPECT_EQ(status.valid, 1);
    EXPECT_LE(status.primal, optimum.primal + rounding);
    EXPECT_GE(status.dual, optimum.primal - rounding);
    const Tensor loads = at::bincount(got.expert_of_token.cpu().to(at::kLong), {}, experts);
    for (int64_t e = 0; e < experts; ++e) {
      EXPECT_GE(loads[e].item<int64_t>(), bounds.lower[static_cast<size_t>(e)]);
      EXPECT_LE(loads[e].item<int64_t>(), bounds.upper[static_cast<size_t>(e)]);
    }
  }
}

TEST_F(BoundedWorkCuda, AUsualProblemNeverComesNearTheLimit) {
  const Tensor scores = at::randn({16384, 128}).cuda();
  const auto bounded = Assigner({.max_work = assignment::kBoundedCudaWork}).assign(scores);
  const auto free = Assigner({}).assign(scores);
  EXPECT_TRUE(at::equal(bounded.expert_of_token, free.expert_of_token));
  EXPECT_TRUE(at::equal(bounded.status, free.status));
}

TEST_F(BoundedWorkCuda, GivesTheSameBitsOnEveryRun) {
  const Tensor scores = collapsed(8192, 64).view({4, 2048, 64}).cuda();
  const auto first = Assigner({.max_work = 1 << 18}).assign(scores);
  for (int i = 0; i < 5; ++i) {
    const auto again = Assigner({.max_work = 1 << 18}).assign(scores);
    EXPECT_TRUE(at::equal(again.expert_of_token, first.expert_of_token));
    EXPECT_TRUE(at::equal(again.status, first.status));
  }
}

}  // namespace
}  // namespace ballast::experts
