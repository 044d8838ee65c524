// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: problems that are solved with their scores on chip, against the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "ballast/experts/assigner.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/system/random.h"
#include "tests/experts/awkward_scores.h"
#include "tests/experts/cuda_graph.h"

namespace ballast::experts {
namespace {

using assignment::AssignmentStatus;
using at::Tensor;

class OnChipCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    at::manual_seed(1);
  }
};

// Problems of one shape that fits: experts divide tokens.
Tensor fuzzed_batch(uint64_t seed, int64_t problems) {
  RandomStream random(seed, "on chip");
  const auto experts = static_cast<int64_t>(2 + random.below(127));
  const int64_t most = std::max<int64_t>(1, (seed % 16 == 0 ? 2048 : 384) / experts);
  const auto each = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(most)));
  std::vector<Tensor> all;
  for (int64_t p = 0; p < problems; ++p)
    all.push_back(scores_of(static_cast<int>(random.below(kSorts)), each * experts, experts));
  const at::ScalarType types[] = {at::kFloat, at::kFloat, at::kBFloat16, at::kHalf};
  return at::stack(all).to(types[random.below(4)]);
}

TensorAssignment problem_of(const TensorAssignment& result, int64_t p) {
  return {.expert_of_token = result.expert_of_token[p],
          .tokens_by_expert = result.tokens_by_expert[p],
          .place_of_token = result.place_of_token[p],
          .loads = result.loads[p],
          .prices = result.prices[p],
          .status = result.status.slice(0, p, p + 1)};
}

double magnitude_of(const Tensor& scores) {
  return scores.to(at::kDouble).abs().amax(1).sum().item<double>();
}

// (dual - primal) / (dual - blind), all computed here; 0 where that is rounding.
double gap_of(const Tensor& scores, const TensorAssignment& result) {
  const Tensor exact = scores.to(at::kDouble);
  const Tensor prices = result.prices.cpu();
  const Tensor chosen = result.expert_of_token.cpu().to(at::kLong).unsqueeze(1);
  const double primal = exact.gather(1, chosen).sum().item<double>();
  const double dual = (exact - prices).amax(1).sum().item<double>() +
                      (prices * result.loads.cpu()).sum().item<double>();
  const double blind = exact.mean(1).sum().item<double>();
  return dual - primal > 1e-8 * magnitude_of(scores) ? (dual - primal) / (dual - blind) : 0;
}

void expect_even(const TensorAssignment& result, int64_t tokens, int64_t experts) {
  EXPECT_TRUE(at::equal(result.loads.cpu(), at::full({experts}, tokens / experts, at::kInt)));
  expect_ordered(result, experts);
}

// Ten thousand problems, in parts that can run side by side.
class OnChipFuzzCuda : public OnChipCuda, public testing::WithParamInterface<uint64_t> {};
constexpr uint64_t kFuzzParts = 5;
INSTANTIATE_TEST_SUITE_P(Parts, OnChipFuzzCuda, testing::Range<uint64_t>(0, kFuzzParts));

TEST_P(OnChipFuzzCuda, ProblemsAreSolvedAsOnTheCpu) {
  constexpr int64_t kProblems = 16;
  for (uint64_t seed = GetParam(); seed < 625 && !HasFailure(); seed += kFuzzParts) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Tensor scores = fuzzed_batch(seed, kProblems);
    const int64_t tokens = scores.size(1), experts = scores.size(2);
    AssignInputs warm;
    if (seed % 3 == 1) warm.start_prices = at::randn({experts}, at::kDouble);
    Assigner assigner({});
    const auto want = assigner.assign(scores);
    if (warm.start_prices.defined()) warm.start_prices = warm.start_prices.cuda();
    const auto got = assigner.assign(scores.cuda(), warm);
    assigner.check(got);
    const auto on_gpu = read_status(got), on_cpu = read_status(want);
    for (int64_t p = 0; p < kProblems; ++p) {
      SCOPED_TRACE("problem " + std::to_string(p));
      const auto at = static_cast<size_t>(p);
      const double rounding = 1e-9 * magnitude_of(scores[p]) + 1e-300;
      expect_even(problem_of(got, p), tokens, experts);
      EXPECT_EQ(on_gpu[at].valid, 1);
      EXPECT_NEAR(on_gpu[at].primal, on_cpu[at].primal, rounding);
      EXPECT_NEAR(on_gpu[at].dual, on_cpu[at].dual, 2 * rounding);
      EXPECT_NEAR(on_gpu[at].blind, on_cpu[at].blind, rounding);
    }
  }
}

// Problems of one shape, of these sorts in turn.
Tensor mixed_batch(int64_t problems, int64_t tokens, int64_t experts,
                   const std::vector<int>& sorts) {
  std::vector<Tensor> all;
  for (size_t p = 0; p < static_cast<size_t>(problems); ++p)
    all.push_back(scores_of(sorts[p % sorts.size()], tokens, experts));
  return at::stack(all);
}

// Too many tokens for a cluster, more clusters than fit at once, more teams than fit at once.
constexpr std::tuple<int64_t, int64_t, int64_t> kManyBlocks[] = {
    {1, 16384, 128}, {16, 2048, 128}, {20, 2048, 128}, {2, 32768, 16}, {3, 15360, 60}};

TEST_F(OnChipCuda, ProblemsOfManyBlocksAreSolvedAsOnTheCpu) {
  for (const auto& [problems, tokens, experts] : kManyBlocks) {
    const Tensor scores = mixed_batch(problems, tokens, experts, {0, 4});
    const TensorAssignment got = Assigner({}).assign(scores.cuda());
    const auto on_gpu = read_status(got), on_cpu = read_status(Assigner({}).assign(scores));
    for (int64_t p = 0; p < problems; ++p) {
      SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts) + ", problem " +
                   std::to_string(p));
      const auto at = static_cast<size_t>(p);
      const double rounding = 1e-9 * magnitude_of(scores[p]);
      expect_even(problem_of(got, p), tokens, experts);
      EXPECT_EQ(on_gpu[at].code, AssignmentStatus::kOk);
      EXPECT_NEAR(on_gpu[at].primal, on_cpu[at].primal, rounding);
      EXPECT_NEAR(on_gpu[at].dual, on_cpu[at].dual, 2 * rounding);
      EXPECT_NEAR(on_gpu[at].blind, on_cpu[at].blind, rounding);
    }
  }
}

// Odd scores may end, balanced, where the work that is allowed ends.
TEST_F(OnChipCuda, ProblemsOfManyBlocksTellTheirGapTruly) {
  for (const auto& [problems, tokens, experts] : kManyBlocks) {
    const Tensor scores = mixed_batch(std::min<int64_t>(16, problems + kSorts), tokens, experts,
                                      {0, 1, 2, 3, 4, 5, 6, 7});
    const TensorAssignment got = Assigner({.gap = 1e-3}).assign(scores.cuda());
    const auto statuses = read_status(got);
    for (int64_t p = 0; p < scores.size(0); ++p) {
      SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts) + ", problem " +
                   std::to_string(p));
      const AssignmentStatus& status = statuses[static_cast<size_t>(p)];
      const TensorAssignment found = problem_of(got, p);
      expect_even(found, tokens, experts);
      EXPECT_EQ(status.valid, 1);
      EXPECT_GE(gap_of(scores[p], found), -1e-9);
      if (status.code == AssignmentStatus::kOk) {
        EXPECT_LE(gap_of(scores[p], found), 1e-3 * (1 + 1e-4));
      }
      EXPECT_NEAR(status.dual - status.primal, status.gap, 1e-9 * magnitude_of(scores[p]));
    }
  }
}

TEST_F(OnChipCuda, AnAllowedGapIsKeptAndToldTruly) {
  constexpr double kGap = 1e-3;
  for (uint64_t seed = 0; seed < 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Tensor scores = fuzzed_batch(seed, 8).to(at::kFloat);
    Assigner assigner({.gap = kGap});
    const auto got = assigner.assign(scores.cuda());
    const auto statuses = read_status(got);
    for (int64_t p = 0; p < scores.size(0); ++p) {
      SCOPED_TRACE("problem " + std::to_string(p));
      const AssignmentStatus& status = statuses[static_cast<size_t>(p)];
      const TensorAssignment found = problem_of(got, p);
      expect_even(found, scores.size(1), scores.size(2));
      EXPECT_EQ(status.valid, 1);
      const double gap = gap_of(scores[p], found);
      EXPECT_GE(gap, -1e-9);
      if (status.code == AssignmentStatus::kOk) {
        EXPECT_LE(gap, kGap * (1 + 1e-4));
      }
      EXPECT_NEAR(status.dual - status.primal, status.gap, 1e-9 * magnitude_of(scores[p]));
    }
  }
}

TEST_F(OnChipCuda, OrdinaryScoresReachTheGap) {
  for (const int64_t experts : {8, 32, 64, 128}) {
    for (const int sort : {0, 4, 5}) {
      SCOPED_TRACE(std::to_string(experts) + " experts, sort " + std::to_string(sort));
      std::vector<Tensor> all;
      for (int p = 0; p < 16; ++p) all.push_back(scores_of(sort, 2048, experts));
      const Tensor scores = at::stack(all);
      for (const double gap : {0.0, 1e-3}) {
        if (gap > 0 && sort == 5) continue;  // ties: only the general solver untangles them
        for (const AssignmentStatus& status :
             read_status(Assigner({.gap = gap}).assign(scores.cuda())))
          EXPECT_EQ(status.code, AssignmentStatus::kOk);
      }
    }
  }
}

// Prices that no scores of this size can have, or that mean nothing, do not keep it from the end.
TEST_F(OnChipCuda, StartPricesOfAnotherSizeAreDropped) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const double scale : {1e-39, 1e-6, 1.0, 1e30}) {
    const Tensor scores = (at::randn({3, 512, 4}, at::kDouble) * scale).to(at::kFloat);
    const auto want = read_status(Assigner({}).assign(scores));
    for (const double size : {0.2, 1e20, 1e38, 1e300, static_cast<double>(nan)}) {
      SCOPED_TRACE("scores of " + std::to_string(scale) + ", prices of " + std::to_string(size));
      AssignInputs warm;
      warm.start_prices = (at::rand({4}, at::kDouble) * size).cuda();
      for (const double gap : {0.0, 1e-3}) {
        const auto got = read_status(Assigner({.gap = gap}).assign(scores.cuda(), warm));
        for (size_t p = 0; p < 3; ++p) {
          EXPECT_EQ(got[p].code, AssignmentStatus::kOk);
          const double rounding = 1e-9 * magnitude_of(scores[static_cast<int64_t>(p)]);
          EXPECT_NEAR(got[p].primal, want[p].primal,
                      rounding + gap * (want[p].dual - want[p].blind) * (1 + 1e-4));
        }
      }
    }
  }
}

// A preference that all tokens share, two sorts of tokens, and directions each a fraction of the
// one before.
Tensor collapsed_scores(int64_t tokens, int64_t experts) {
  const Tensor sort = at::where(at::rand({tokens, 1}) < 0.7, at::full({tokens, 1}, -0.65),
                                at::full({tokens, 1}, 1.5));
  Tensor scores = 2 * at::randn({1, experts}) +
                  (sort + 0.01 * at::randn({tokens, 1})) * at::randn({1, experts});
  for (const double part : {2e-2, 3e-3, 1e-3, 5e-4, 3e-4, 2e-4, 1e-4})
    scores = scores + part * at::randn({tokens, 1}) * at::randn({1, experts});
  return scores;
}

TEST_F(OnChipCuda, CollapsedScoresAreSolvedAsOnTheCpu) {
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{2048, 32}, {2048, 128}}) {
    const Tensor scores =
        at::stack({collapsed_scores(tokens, experts), collapsed_scores(tokens, experts)});
    const TensorAssignment got = Assigner({}).assign(scores.cuda());
    const auto on_gpu = read_status(got), on_cpu = read_status(Assigner({}).assign(scores));
    for (int64_t p = 0; p < 2; ++p) {
      const auto at = static_cast<size_t>(p);
      expect_even(problem_of(got, p), tokens, experts);
      EXPECT_EQ(on_gpu[at].code, AssignmentStatus::kOk);
      EXPECT_NEAR(on_gpu[at].primal, on_cpu[at].primal, 1e-9 * magnitude_of(scores[p]));
    }
  }
}

TEST_F(OnChipCuda, WhatIsNotFiniteIsReplacedOrRefusedAsOnTheCpu) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  Tensor scores = at::randn({3, 512, 32});
  scores[1][17][5] = nan;
  scores[1][300][31] = -infinity;
  scores[2][511][0] = infinity;
  for (const double gap : {0.0, 1e-3}) {
    Assigner lowest({.non_finite = assignment::NonFinite::kLowest, .gap = gap});
    const auto got = read_status(lowest.assign(scores.cuda())),
               want = read_status(lowest.assign(scores));
    for (size_t p = 0; p < 3; ++p) {
      EXPECT_EQ(got[p].replaced, want[p].replaced);
      EXPECT_EQ(got[p].valid, 1);
      EXPECT_NEAR(got[p].primal, want[p].primal, (gap > 0 ? 2e-3 : 1e-9) * want[p].primal);
    }
    Assigner reject({.gap = gap});
    const auto refused = read_status(reject.assign(scores.cuda()));
    EXPECT_EQ(refused[0].code, AssignmentStatus::kOk);
    EXPECT_EQ(refused[1].code, AssignmentStatus::kNonFinite);
    EXPECT_EQ(refused[1].token, 17);
    EXPECT_EQ(refused[1].expert, 5);
    EXPECT_EQ(refused[2].token, 511);
    EXPECT_EQ(refused[2].expert, 0);
  }
}

void expect_same_every_time(const Tensor& scores, double gap) {
  Assigner assigner({.gap = gap});
  const TensorAssignment first = assigner.assign(scores);
  read_status(
      first);  // waits: an assigner works on one stream at a time, and the graph has its own
  TensorAssignment again;
  CudaGraph graph([&] { again = assigner.assign(scores); });
  for (int i = 0; i < 5; ++i) {
    again.expert_of_token.fill_(-1);
    again.prices.fill_(0);
    at::zeros({1}, scores.options()).item<float>();  // waits
    graph.replay();
    EXPECT_TRUE(at::equal(first.expert_of_token, again.expert_of_token));
    EXPECT_TRUE(at::equal(first.prices, again.prices));
  }
}

TEST_F(OnChipCuda, ResultsAreTheSameEveryTimeAndInAGraph) {
  for (const auto& [scores, gap] : {std::pair<Tensor, double>{at::randn({16, 2048, 32}), 0.0},
                                    {at::randn({16, 2048, 32}), 1e-3},
                                    {at::randn({1, 16384, 128}), 0.0},
                                    {mixed_batch(8, 4096, 64, {0, 1, 4, 7}), 1e-3}}) {
    expect_same_every_time(scores.cuda(), gap);
  }
}

TEST_F(OnChipCuda, StridesDoNotMatter) {
  const Tensor scores = at::randn({4, 1024, 32}).cuda();
  const TensorAssignment plain = Assigner({}).assign(scores);
  const Tensor padded = at::zeros({4, 1024, 37}, scores.options());
  padded.slice(2, 3, 35).copy_(scores);
  for (const Tensor& same :
       {padded.slice(2, 3, 35), scores.transpose(1, 2).contiguous().transpose(1, 2)})
    EXPECT_TRUE(at::equal(Assigner({}).assign(same).expert_of_token, plain.expert_of_token));
}

}  // namespace
}  // namespace ballast::experts
