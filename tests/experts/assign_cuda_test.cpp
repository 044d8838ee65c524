// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: the solvers there against those of the CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ballast/experts/assigner.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/system/random.h"
#include "tests/experts/cuda_graph.h"
#include "tests/support/error_of.h"

namespace ballast::experts {
namespace {

using assignment::SolverKind;
using at::Tensor;
using testing::HasSubstr;

constexpr SolverKind kSolvers[] = {SolverKind::kExact, SolverKind::kAuction, SolverKind::kGreedy};

class AssignCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    at::manual_seed(1);
  }
};

std::string name_of(SolverKind kind) { return std::string(assignment::solver_name(kind)); }

// A score matrix of one of several awkward sorts.
Tensor scores_of(int sort, int64_t tokens, int64_t experts) {
  const Tensor gauss = at::randn({tokens, experts});
  switch (sort) {
    case 1:
      return at::randint(0, 3, {tokens, experts}).to(at::kFloat);
    case 2:
      return at::full({tokens, experts}, 1.5);
    case 3:
      return gauss.slice(0, 0, 1).expand({tokens, experts}).contiguous();
    case 4:
      return gauss + 4 * at::randn({1, experts});
    case 5:
      return (gauss * 4).round() / 4;
    case 6:
      return gauss * 1e-39;
    case 7:
      return gauss + 1e4 * at::rand({tokens, experts}).lt(0.01).to(at::kFloat);
    default:
      return gauss;
  }
}
constexpr int kSorts = 8;

struct Problem {
  Tensor scores = {}, counted = {};
  AssignOptions options = {};
};

// Sizes, bounds and masks from a seed.
Problem fuzzed(uint64_t seed) {
  RandomStream random(seed, "assign cuda");
  const auto tokens = static_cast<int64_t>(1 + random.below(600));
  const auto experts = static_cast<int64_t>(1 + random.below(70));
  Problem problem{.scores = scores_of(static_cast<int>(random.below(kSorts)), tokens, experts)};
  if (random.below(3) > 0) {
    std::vector<int32_t> loads(static_cast<size_t>(experts), 0);
    const uint64_t used = 1 + random.below(static_cast<uint64_t>(experts));
    for (int64_t t = 0; t < tokens; ++t) ++loads[random.below(used)];
    assignment::LoadBounds& bounds = problem.options.bounds;
    bounds = {.lower = loads, .upper = loads};
    const uint64_t slack = random.below(3);
    for (size_t e = 0; e < loads.size() && slack > 0; ++e) {
      bounds.upper[e] += static_cast<int32_t>(random.below(4));
      bounds.lower[e] = slack == 1 ? 0 : static_cast<int32_t>(random.below(1 + bounds.lower[e]));
    }
  }
  if (random.below(3) == 0) problem.counted = at::rand({tokens}) < random.uniform();
  return problem;
}

AssignInputs inputs_of(const Problem& problem, at::DeviceType device) {
  if (!problem.counted.defined()) return {};
  return {.counted = problem.counted.to(device)};
}

double magnitude_of(const Problem& problem) {
  Tensor rows = problem.scores.to(at::kDouble).abs().amax(1);
  if (problem.counted.defined()) rows = rows * problem.counted;
  return rows.sum().item<double>();
}

// The order is the stable sort of the experts, and its inverse; loads are counts; all by the CPU.
void expect_ordered(const TensorAssignment& result, int64_t experts) {
  const Tensor chosen = result.expert_of_token.cpu().to(at::kLong);
  const Tensor order = at::argsort(chosen, /*stable=*/true, 0, false);
  EXPECT_TRUE(at::equal(result.tokens_by_expert.cpu().to(at::kLong), order));
  EXPECT_TRUE(at::equal(result.place_of_token.cpu().to(at::kLong), at::argsort(order)));
  EXPECT_TRUE(at::equal(result.loads.cpu().to(at::kLong), at::bincount(chosen, {}, experts)));
}

TEST_F(AssignCuda, FuzzedProblemsAreSolvedAsOnTheCpu) {
  for (uint64_t seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    Problem problem = fuzzed(seed);
    const double rounding = 1e-9 * magnitude_of(problem) + 1e-300;
    for (const SolverKind kind : kSolvers) {
      SCOPED_TRACE(name_of(kind) + ", seed " + std::to_string(seed));
      problem.options.solver = kind;
      Assigner assigner(problem.options);
      const auto got = assigner.assign(problem.scores.cuda(), inputs_of(problem, at::kCUDA));
      const auto want = assigner.assign(problem.scores, inputs_of(problem, at::kCPU));
      assigner.check(got);
      expect_ordered(got, problem.scores.size(1));
      const assignment::AssignmentStatus on_gpu = read_status(got)[0],
                                         on_cpu = read_status(want)[0];
      EXPECT_EQ(on_gpu.valid, on_cpu.valid);
      EXPECT_GE(on_gpu.gap, -rounding);
      EXPECT_NEAR(on_gpu.dual, on_gpu.primal + on_gpu.gap, rounding);
      EXPECT_NEAR(on_gpu.blind, on_cpu.blind, rounding);
      if (kind == SolverKind::kAuction) continue;  // completes in another order
      EXPECT_NEAR(on_gpu.primal, on_cpu.primal, rounding);
      EXPECT_NEAR(on_gpu.dual, on_cpu.dual, 2 * rounding);  // each has a gap of its own
    }
  }
}

TEST_F(AssignCuda, TheAuctionGoesAsOnTheCpu) {
  Assigner assigner({.solver = SolverKind::kAuction});
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{64, 8},
                                        {2048, 8},
                                        {2048, 128},
                                        {4096, 64},
                                        {65536, 16},
                                        {512, 512}}) {
    for (const int sort : {0, 4}) {
      const Tensor scores = scores_of(sort, tokens, experts);
      const auto got = assigner.assign(scores.cuda()), want = assigner.assign(scores);
      SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(experts));
      EXPECT_TRUE(at::equal(got.expert_of_token.cpu(), want.expert_of_token));
      EXPECT_TRUE(at::equal(got.prices.cpu(), want.prices));
      EXPECT_EQ(read_status(got)[0].valid, 1);
      // Sums of doubles in another order.
      EXPECT_NEAR(read_status(got)[0].gap, read_status(want)[0].gap, 1e-9 * tokens);
    }
  }
}

TEST_F(AssignCuda, TypesAndStridesDoNotMatter) {
  for (const SolverKind kind : kSolvers) {
    Assigner assigner({.solver = kind});
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Tensor rows = at::randn({256, 16}).to(type).cuda();
      const Tensor wide = at::randn({256, 2, 32}).to(type).cuda();
      wide.select(1, 1).slice(1, 0, 32, 2).copy_(rows);
      const auto want = assigner.assign(rows.to(at::kFloat));
      for (const Tensor& scores :
           {rows, rows.t().contiguous().t(), wide.select(1, 1).slice(1, 0, 32, 2)}) {
        SCOPED_TRACE(name_of(kind) + " " + c10::toString(type));
        EXPECT_TRUE(at::equal(assigner.assign(scores).expert_of_token, want.expert_of_token));
      }
    }
  }
}

void expect_same(const TensorAssignment& a, const TensorAssignment& b) {
  EXPECT_TRUE(at::equal(a.expert_of_token, b.expert_of_token));
  EXPECT_TRUE(at::equal(a.tokens_by_expert, b.tokens_by_expert));
  EXPECT_TRUE(at::equal(a.place_of_token, b.place_of_token));
  EXPECT_TRUE(at::equal(a.loads, b.loads));
  EXPECT_TRUE(at::equal(a.prices, b.prices));
  EXPECT_TRUE(at::equal(a.status, b.status));  // bit for bit
}

TEST_F(AssignCuda, GivesTheSameBitsOnEveryRun) {
  for (const SolverKind kind : kSolvers) {
    for (int sort = 0; sort < kSorts; ++sort) {
      const Tensor scores = scores_of(sort, 2050, 64).cuda();
      const auto first = Assigner({.solver = kind}).assign(scores);
      for (int i = 0; i < 5; ++i) {
        SCOPED_TRACE(name_of(kind) + ", sort " + std::to_string(sort));
        expect_same(Assigner({.solver = kind}).assign(scores), first);
      }
    }
  }
}

TEST_F(AssignCuda, SeveralProblemsAreSolvedAsOneByOne) {
  std::vector<Tensor> parts;
  for (int sort = 0; sort < kSorts; ++sort) parts.push_back(scores_of(sort, 500, 24));
  const Tensor scores = at::stack(parts).cuda();
  const Tensor counted = (at::rand({kSorts, 500}) < 0.8).cuda();
  for (const SolverKind kind : kSolvers) {
    Assigner assigner({.solver = kind});
    const auto all = assigner.assign(scores, {.counted = counted});
    assigner.check(all);
    for (int64_t p = 0; p < kSorts; ++p) {
      SCOPED_TRACE(name_of(kind) + ", sort " + std::to_string(p));
      const auto one = assigner.assign(scores[p], {.counted = counted[p]});
      EXPECT_TRUE(at::equal(one.expert_of_token, all.expert_of_token[p]));
      EXPECT_TRUE(at::equal(one.tokens_by_expert, all.tokens_by_expert[p]));
      EXPECT_TRUE(at::equal(one.prices, all.prices[p]));
      EXPECT_TRUE(at::equal(one.status[0], all.status[p]));
    }
  }
}

TEST_F(AssignCuda, CanBeRecordedInAGraph) {
  for (const SolverKind kind : kSolvers) {
    SCOPED_TRACE(name_of(kind));
    Assigner assigner({.solver = kind});
    const Tensor scores = at::randn({1024, 32}).cuda();
    TensorAssignment recorded;
    CudaGraph graph([&] { recorded = assigner.assign(scores); });
    for (int i = 0; i < 3; ++i) {
      scores.copy_(at::randn({1024, 32}).cuda());
      scores.sum().item<float>();  // waits for the copy
      graph.replay();
      expect_same(recorded, Assigner({.solver = kind}).assign(scores));
    }
  }
}

TEST_F(AssignCuda, StartPricesMakeNoDifferenceToTheObjective) {
  const Tensor scores = scores_of(4, 2048, 64).cuda();
  Assigner assigner({});
  const auto cold = assigner.assign(scores);
  for (const Tensor& prices : {cold.prices, at::randn({64}, at::kDouble).cuda() * 100}) {
    const auto warm = assigner.assign(scores, {.start_prices = prices});
    assigner.check(warm);
    EXPECT_NEAR(read_status(warm)[0].primal, read_status(cold)[0].primal,
                1e-9 * scores.abs().amax(1).sum().item<double>());
  }
}

TEST_F(AssignCuda, NamesTheScoreThatIsRefusedLater) {
  Tensor scores = at::randn({2, 50, 4});
  scores[1][31][2] = std::numeric_limits<double>::quiet_NaN();
  scores[1][31][3] = std::numeric_limits<double>::infinity();
  scores[1][40][0] = std::numeric_limits<double>::quiet_NaN();
  for (const SolverKind kind : kSolvers) {
    SCOPED_TRACE(name_of(kind));
    Assigner assigner({.solver = kind});
    const auto result = assigner.assign(scores.cuda());
    expect_ordered({.expert_of_token = result.expert_of_token[1],
                    .tokens_by_expert = result.tokens_by_expert[1],
                    .place_of_token = result.place_of_token[1],
                    .loads = result.loads[1],
                    .prices = result.prices[1],
                    .status = result.status},
                   4);
    const std::string error = test::error_of([&] { assigner.check(result); });
    EXPECT_THAT(error, HasSubstr("problem 1"));
    EXPECT_THAT(error, HasSubstr("token 31"));
    EXPECT_THAT(error, HasSubstr("expert 2"));
    EXPECT_EQ(read_status(result)[0].code, assignment::AssignmentStatus::kOk);

    Assigner lowest({.solver = kind, .non_finite = assignment::NonFinite::kLowest});
    const auto replaced = lowest.assign(scores.cuda());
    lowest.check(replaced);
    EXPECT_EQ(read_status(replaced)[1].replaced, 3);
  }
}

TEST_F(AssignCuda, ForbiddenPairsAreAvoidedOrSaidToBeInTheWay) {
  for (const SolverKind kind : {SolverKind::kExact, SolverKind::kAuction}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE(name_of(kind) + ", seed " + std::to_string(seed));
      RandomStream random(seed, "forbidden");
      const auto tokens = static_cast<int64_t>(1 + random.below(64));
      const auto experts = static_cast<int64_t>(1 + random.below(12));
      const Tensor forbidden = at::rand({tokens, experts}) < 0.9 * random.uniform();
      const Tensor scores = scores_of(static_cast<int>(seed % kSorts), tokens, experts)
                                .masked_fill(forbidden, -std::numeric_limits<double>::infinity());
      Assigner assigner({.solver = kind, .non_finite = assignment::NonFinite::kForbid});
      const std::string on_cpu = test::error_of([&] { assigner.assign(scores); });
      const auto result = assigner.assign(scores.cuda());
      const std::string on_gpu = test::error_of([&] { assigner.check(result); });
      EXPECT_EQ(on_gpu == "no error", on_cpu == "no error") << on_cpu << " / " << on_gpu;
      EXPECT_EQ(read_status(result)[0].valid != 0, on_cpu == "no error");
      expect_ordered(result, experts);
    }
  }
}

TEST_F(AssignCuda, SinkhornIsRefusedThere) {
  const Tensor scores = at::randn({8, 2}).cuda();
  EXPECT_THAT(test::error_of([&] { Assigner({.solver = SolverKind::kSinkhorn}).assign(scores); }),
              HasSubstr("CPU only"));
}

TEST_F(AssignCuda, TakesEmptyAndNarrowShapes) {
  for (const SolverKind kind : kSolvers) {
    SCOPED_TRACE(name_of(kind));
    Assigner assigner({.solver = kind});
    const auto none = assigner.assign(at::randn({0, 4}).cuda());
    assigner.check(none);
    EXPECT_EQ(none.loads.sum().item<int64_t>(), 0);
    EXPECT_EQ(assigner.assign(at::randn({0, 5, 4}).cuda()).loads.sizes(), at::IntArrayRef({0, 4}));
    const auto one = assigner.assign(at::randn({7, 1}).cuda());
    assigner.check(one);
    EXPECT_EQ(one.expert_of_token.sum().item<int64_t>(), 0);
    const auto few = assigner.assign(at::randn({3, 16}).cuda());
    assigner.check(few);
    if (kind != SolverKind::kGreedy) {
      EXPECT_LE(few.loads.max().item<int64_t>(), 1);
    }
  }
}

}  // namespace
}  // namespace ballast::experts
