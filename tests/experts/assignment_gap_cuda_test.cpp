// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: the exact solver with a gap that it is allowed.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "ballast/experts/assigner.h"
#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using assignment::AssignmentStatus;
using at::Tensor;

class AssignmentGapCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    at::manual_seed(1);
  }
};

double gap_of(const AssignmentStatus& status) {
  return assignment::relative_gap(status.primal, status.dual, status.blind);
}

// Problems [P, T, E] of one shape: Gaussian, with large constants in rows and columns, and with few
// directions.
std::vector<Tensor> kinds(int64_t problems, int64_t tokens, int64_t experts) {
  const Tensor gauss = at::randn({problems, tokens, experts});
  return {gauss,
          gauss + 30 * at::randn({problems, tokens, 1}) + 30 * at::randn({problems, 1, experts}),
          at::matmul(at::randn({problems, tokens, 2}), at::randn({problems, 2, experts}))};
}

// What is allowed is kept, certified and balanced, whatever the scores' size.
TEST_F(AssignmentGapCuda, IsKeptAndCertified) {
  for (const auto& [problems, tokens, experts] :
       {std::tuple<int64_t, int64_t, int64_t>{16, 2048, 32}, {1, 2048, 128}, {3, 1001, 24}}) {
    const std::vector<Tensor> all = kinds(problems, tokens, experts);
    for (size_t kind = 0; kind < all.size(); ++kind) {
      const Tensor& scores = all[kind];
      const auto want = read_status(Assigner({}).assign(scores));
      for (const double allowed : {0.0, 0.001, 0.05}) {
        SCOPED_TRACE(
            fmt::format("{} x {} x {}, kind {}, gap {}", problems, tokens, experts, kind, allowed));
        const TensorAssignment result =
            Assigner({.gap = allowed, .self_check = true}).assign(scores.cuda());
        const auto got = read_status(result);
        for (size_t p = 0; p < got.size(); ++p) {
          const double rounding = 1e-9 * std::abs(want[p].primal) + 1e-9 * 50 * tokens;
          // Scores with few directions may end, balanced, where the work that is allowed ends.
          const bool odd = kind == 2 && allowed > 0;
          EXPECT_TRUE(odd || got[p].code == AssignmentStatus::kOk)
              << "problem " << p << " ends at " << gap_of(got[p]);
          EXPECT_EQ(got[p].valid, 1);
          const bool reached = got[p].code == AssignmentStatus::kOk;
          EXPECT_LE(gap_of(got[p]), (reached ? allowed : 0.02) + 1e-6);
          EXPECT_NEAR(got[p].blind, want[p].blind, rounding);
          EXPECT_LE(got[p].primal, want[p].primal + rounding);
          EXPECT_GE(got[p].dual, want[p].primal - rounding);
        }
        EXPECT_LE(result.loads.max().item<int64_t>(), (tokens + experts - 1) / experts);
        EXPECT_GE(result.loads.min().item<int64_t>(), tokens / experts);
      }
    }
  }
}

TEST_F(AssignmentGapCuda, HoldsWithForbiddenPairsAndPadding) {
  Tensor scores = at::randn({4, 1024, 16});
  scores.masked_fill_(at::rand({4, 1024, 16}) < 0.1, -INFINITY);
  const Tensor counted = at::rand({4, 1024}) < 0.9;
  const AssignOptions options{
      .non_finite = assignment::NonFinite::kForbid, .gap = 0.01, .self_check = true};
  const auto want = read_status(Assigner(options).assign(scores, {.counted = counted}));
  const auto got =
      read_status(Assigner(options).assign(scores.cuda(), {.counted = counted.cuda()}));
  for (size_t p = 0; p < got.size(); ++p) {
    EXPECT_EQ(got[p].valid, 1);
    EXPECT_NEAR(got[p].blind, want[p].blind, 1e-6);
    EXPECT_LE(gap_of(got[p]), 0.01 + 1e-6);
    EXPECT_LE(got[p].primal, want[p].primal + 1e-5);
  }
}

}  // namespace
}  // namespace ballast::experts
