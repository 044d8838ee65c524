// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ballast/experts/assigner.h"
#include "tests/support/error_of.h"

namespace ballast::experts {
namespace {

using assignment::SolverKind;
using at::Tensor;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr SolverKind kSolvers[] = {SolverKind::kExact, SolverKind::kAuction, SolverKind::kGreedy,
                                   SolverKind::kSinkhorn};

class Assign : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

// What the solver says of the same numbers as plain row-major floats.
assignment::Assignment plainly(const Tensor& scores, SolverKind kind,
                               std::span<const uint8_t> counted = {}) {
  const Tensor rows = scores.to(at::kFloat).contiguous();
  assignment::AssignmentProblem problem;
  problem.counted = counted;
  problem.scores = assignment::score_matrix(rows.data_ptr<float>(), rows.size(0), rows.size(1));
  assignment::Assignment result;
  assignment::make_solver(kind)->solve(problem, {}, result);
  return result;
}

template <typename T>
std::vector<T> list(const Tensor& tensor) {
  const Tensor host = tensor.cpu().contiguous();
  return {host.data_ptr<T>(), host.data_ptr<T>() + host.numel()};
}

void expect_equal(const TensorAssignment& got, const assignment::Assignment& want) {
  EXPECT_EQ(list<int32_t>(got.expert_of_token), want.expert_of_token);
  EXPECT_EQ(list<int32_t>(got.tokens_by_expert), want.tokens_by_expert);
  EXPECT_EQ(list<int32_t>(got.place_of_token), want.place_of_token);
  EXPECT_EQ(list<int32_t>(got.loads), want.loads);
  EXPECT_EQ(list<double>(got.prices), want.prices);
}

TEST_F(Assign, EqualsTheSolverForAnyTypeAndStrides) {
  for (const SolverKind kind : kSolvers) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Tensor rows = at::randn({96, 8}).to(type);
      const Tensor wide = at::randn({96, 3, 16}).to(type);
      for (const Tensor& scores :
           {rows, rows.t().contiguous().t(), wide.select(1, 1).slice(1, 3, 11),
            wide.select(1, 2).slice(1, 0, 16, 2), rows.slice(0, 0, 1).expand({96, 8})}) {
        SCOPED_TRACE(std::string(assignment::solver_name(kind)) + " " + c10::toString(type));
        expect_equal(Assigner({.solver = kind}).assign(scores), plainly(scores, kind));
      }
    }
  }
}

TEST_F(Assign, OfSeveralProblemsIsOneByOne) {
  const Tensor scores = at::randn({3, 64, 8});
  const Tensor counted = at::rand({3, 64}) < 0.7;
  const Tensor prices = at::rand({3, 8}, at::kDouble);
  for (const SolverKind kind : kSolvers) {
    Assigner assigner({.solver = kind});
    const auto all = assigner.assign(scores, {.counted = counted, .start_prices = prices});
    EXPECT_EQ(all.expert_of_token.sizes(), at::IntArrayRef({3, 64}));
    EXPECT_EQ(all.prices.sizes(), at::IntArrayRef({3, 8}));
    for (int64_t p = 0; p < 3; ++p) {
      const auto one =
          assigner.assign(scores[p], {.counted = counted[p], .start_prices = prices[p]});
      EXPECT_EQ(one.loads.sizes(), at::IntArrayRef({8}));
      EXPECT_TRUE(at::equal(one.expert_of_token, all.expert_of_token[p]));
      EXPECT_TRUE(at::equal(one.tokens_by_expert, all.tokens_by_expert[p]));
      EXPECT_TRUE(at::equal(one.prices, all.prices[p]));
      EXPECT_EQ(read_status(one)[0].primal, read_status(all)[static_cast<size_t>(p)].primal);
    }
  }
}

TEST_F(Assign, PaddingFillsWhatIsLeft) {
  const Tensor scores = at::randn({40, 4});
  const Tensor counted = at::arange(40).remainder(3).ne(0);
  const std::vector<uint8_t> mask = list<uint8_t>(counted.to(at::kByte));
  for (const Tensor& given : {counted, counted.to(at::kByte)}) {
    const auto result = Assigner({.solver = SolverKind::kExact}).assign(scores, {.counted = given});
    expect_equal(result, plainly(scores, SolverKind::kExact, mask));
    EXPECT_TRUE(result.loads.eq(10).all().item<bool>());
  }
}

TEST_F(Assign, KeepsToBounds) {
  const assignment::LoadBounds bounds = assignment::at_most(std::vector<int64_t>{30, 0, 30, 2}, 40);
  const Tensor scores = at::randn({40, 4});
  for (const SolverKind kind : {SolverKind::kExact, SolverKind::kAuction, SolverKind::kSinkhorn}) {
    Assigner assigner({.solver = kind, .bounds = bounds, .self_check = true});
    const std::vector<int32_t> loads = list<int32_t>(assigner.assign(scores).loads);
    EXPECT_EQ(loads[1], 0);
    EXPECT_LE(loads[3], 2);
  }
}

TEST_F(Assign, TheStatusIsTheCertificate) {
  const Tensor scores = at::randn({50, 5});
  for (const SolverKind kind : kSolvers) {
    const assignment::Certificate want = plainly(scores, kind).certificate;
    const assignment::AssignmentStatus got =
        read_status(Assigner({.solver = kind}).assign(scores))[0];
    EXPECT_EQ(got.code, assignment::AssignmentStatus::kOk);
    EXPECT_EQ(got.valid != 0, want.valid);
    EXPECT_EQ(got.primal, want.primal);
    EXPECT_EQ(got.dual, want.dual);
    EXPECT_EQ(got.gap, want.gap);
    EXPECT_EQ(got.blind, want.blind);
  }
}

TEST_F(Assign, TakesEmptyAndNarrowShapes) {
  Assigner assigner({.solver = SolverKind::kExact});
  EXPECT_EQ(assigner.assign(at::randn({0, 4})).loads.sum().item<int64_t>(), 0);
  EXPECT_EQ(assigner.assign(at::randn({2, 0, 4})).expert_of_token.sizes(), at::IntArrayRef({2, 0}));
  EXPECT_EQ(assigner.assign(at::randn({0, 5, 4})).prices.sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(assigner.assign(at::randn({7, 1})).expert_of_token.sum().item<int64_t>(), 0);
}

TEST_F(Assign, LeavesGradientsAlone) {
  const Tensor scores = at::randn({16, 4}).requires_grad_();
  const auto result = Assigner({}).assign(scores);
  EXPECT_FALSE(result.prices.requires_grad());
}

TEST_F(Assign, IsAlsoAnOperator) {
  const Tensor scores = at::randn({1, 32, 4});
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("ballast::assign", "");
  torch::jit::Stack stack = {scores,
                             at::IValue(),
                             at::IValue(),
                             at::IValue(),
                             at::IValue(),
                             at::empty({0}, at::kByte),
                             static_cast<int64_t>(SolverKind::kAuction),
                             static_cast<int64_t>(assignment::NonFinite::kReject),
                             0.0,
                             int64_t{0}};
  op.callBoxed(&stack);
  ASSERT_EQ(stack.size(), 6U);
  const auto want = Assigner({.solver = SolverKind::kAuction}).assign(scores);
  EXPECT_TRUE(at::equal(stack[0].toTensor(), want.expert_of_token));
}

TEST_F(Assign, NamesTheScoreThatIsRefused) {
  Tensor scores = at::randn({2, 10, 4});
  scores[1][7][2] = std::numeric_limits<double>::quiet_NaN();
  const std::string error = test::error_of([&] { Assigner({}).assign(scores); });
  EXPECT_THAT(error, HasSubstr("problem 1"));
  EXPECT_THAT(error, HasSubstr("token 7"));
  EXPECT_THAT(error, HasSubstr("expert 2"));

  Assigner lowest({.non_finite = assignment::NonFinite::kLowest});
  EXPECT_EQ(read_status(lowest.assign(scores))[1].replaced, 1);
}

TEST_F(Assign, SaysWhenForbiddenPairsLeaveNoAnswer) {
  const Tensor scores = at::full({8, 2}, -kInfinity);
  scores.select(1, 0).zero_();
  for (const SolverKind kind : {SolverKind::kExact, SolverKind::kAuction, SolverKind::kSinkhorn}) {
    Assigner assigner({.solver = kind, .non_finite = assignment::NonFinite::kForbid});
    EXPECT_THAT(test::error_of([&] { assigner.assign(scores); }), HasSubstr("forbidden"))
        << assignment::solver_name(kind);
  }
}

TEST_F(Assign, RefusesWhatDoesNotFit) {
  const Tensor scores = at::randn({10, 4});
  Assigner assigner({});
  const auto error = [&](const Tensor& tensor, const AssignInputs& inputs = {}) {
    return test::error_of([&] { assigner.assign(tensor, inputs); });
  };
  EXPECT_THAT(error(Tensor()), HasSubstr("undefined"));
  EXPECT_THAT(error(at::randn({10})), HasSubstr("[10]"));
  EXPECT_THAT(error(at::randn({2, 2, 2, 2})), HasSubstr("[2, 2, 2, 2]"));
  EXPECT_THAT(error(at::randn({5, 0})), HasSubstr("experts"));
  EXPECT_THAT(error(scores.to(at::kDouble)), HasSubstr("Double"));
  EXPECT_THAT(error(scores, {.counted = at::ones({9}, at::kBool)}), HasSubstr("[9]"));
  EXPECT_THAT(error(scores, {.counted = at::ones({10})}), HasSubstr("Float"));
  EXPECT_THAT(error(scores, {.start_prices = at::ones({5}, at::kDouble)}), HasSubstr("[5]"));
  EXPECT_THAT(error(scores, {.start_prices = at::ones({4})}), HasSubstr("float64"));
  EXPECT_THAT(error(scores, {.counted = at::ones({2, 10}, at::kBool)}), HasSubstr("[2, 10]"));

  Assigner tight({.bounds = {.lower = {0, 0, 0, 0}, .upper = {1, 1, 1, 1}}});
  EXPECT_THAT(test::error_of([&] { tight.assign(scores); }), HasSubstr("0 to 4"));
  EXPECT_THAT(test::error_of([] { Assigner({.solver = SolverKind::kGreedy, .self_check = true}); }),
              HasSubstr("greedy"));
}

TEST_F(Assign, TheSelfCheckStopsOnAnInvalidResult) {
  const Tensor scores = at::randn({16, 4});
  Assigner checking({.solver = SolverKind::kExact, .self_check = true});
  TensorAssignment result = checking.assign(scores);
  assignment::AssignmentStatus status = read_status(result)[0];
  status.valid = 0;
  std::memcpy(result.status.data_ptr<uint8_t>(), &status, sizeof(status));
  EXPECT_THAT(test::error_of([&] { checking.check(result); }), HasSubstr("load bounds"));
  EXPECT_EQ(test::error_of([&] { Assigner({}).check(result); }), "no error");
}

}  // namespace
}  // namespace ballast::experts
