// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_choices.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;

struct Shape {
  int64_t groups, tokens, experts;  // tokens: of a group
};

const std::vector<Shape> kShapes = {{1, 1, 2},    {2, 7, 4},     {3, 64, 5},   {2, 65, 33},
                                    {3, 300, 40}, {1, 200, 128}, {1, 70, 2000}};

// Against plain operations in double; `bound` is of a few roundings, relative to one.
void expect_as_plain(const at::TensorOptions& options, double bound) {
  at::manual_seed(7);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.groups << " groups of " << shape.tokens << ", "
                                    << shape.experts << " experts");
    const int64_t tokens = shape.groups * shape.tokens;
    const Tensor logits = (at::randn({tokens, shape.experts}, at::kDouble) * 3).to(options);
    const Tensor lengths = (at::rand({shape.experts}, at::kDouble) + 0.5).to(options);
    const Tensor given = logits.to(at::kCPU, at::kDouble);
    const Tensor sums = at::softmax(given, 1).view({shape.groups, -1, shape.experts}).sum(1);
    for (const Tensor& divided_by : {Tensor(), lengths}) {
      const Tensor scores = (divided_by.defined() ? logits / divided_by : logits).cpu();
      const int64_t most = std::min<int64_t>(8, shape.experts);
      const Tensor best = std::get<1>(scores.topk(most, 1));
      for (const int64_t of_token : {int64_t{1}, int64_t{2}, most}) {
        const GateChoices got = gate_choices(logits, divided_by, shape.groups, of_token);
        EXPECT_TRUE(at::equal(got.expert.cpu(), best.narrow(1, 0, of_token)));
        EXPECT_LE((got.probability_sums.cpu().sum(1) - sums).abs().max().item<double>(),
                  bound * static_cast<double>(shape.tokens));
        const GateBalance balance = gate_balance(got.expert, got.probability_sums, 0.5);
        for (int64_t group = 0; group < shape.groups; ++group) {
          const Tensor first = best.narrow(0, group * shape.tokens, shape.tokens).select(1, 0);
          const Tensor share = at::bincount(first, {}, shape.experts).to(at::kDouble) /
                               static_cast<double>(shape.tokens);
          const Tensor loss = (share * sums[group] / shape.tokens).sum() * shape.experts;
          EXPECT_LE((balance.shares[group].cpu() - 0.5 * share).abs().max().item<double>(), 1e-15);
          EXPECT_NEAR(balance.losses[group].item<double>(), loss.item<double>(),
                      bound * static_cast<double>(shape.experts));
        }
      }
    }
  }
}

void expect_order_of_equals(at::Device device) {
  Tensor logits = at::zeros({5, 70}, device);
  logits[1][69] = logits[1][35] = 1;
  logits[2][0] = 1;
  logits[3].fill_(-INFINITY);
  logits[4].fill_(NAN);
  const Tensor expected = at::tensor({0, 1, 35, 69, 0, 1, 0, 1, 0, 1}, at::kLong).view({5, 2});
  EXPECT_TRUE(at::equal(gate_choices(logits, {}, 1, 2).expert.cpu(), expected));
  EXPECT_TRUE(at::equal(gate_choices(logits, {}, 1, 1).expert.cpu(), expected.narrow(1, 0, 1)));
  const Tensor four = gate_choices(logits, {}, 1, 4).expert.cpu();
  const Tensor of_nans = at::tensor({0, 1, 2, 3}, at::kLong);
  EXPECT_TRUE(at::equal(four[4], of_nans) && at::equal(four[3], of_nans));
  EXPECT_TRUE(at::equal(four[1], at::tensor({35, 69, 0, 1}, at::kLong)));
}

TEST(GateChoices, EqualTheirTwin) {
  expect_as_plain(at::kDouble, 1e-14);
  expect_as_plain(at::kFloat, 0x1p-21);
}

TEST(GateChoices, OfEqualExpertsTheLowerNumberIsBetter) { expect_order_of_equals(at::kCPU); }

TEST(GateChoices, RefuseWhatDoesNotFit) {
  const Tensor logits = at::zeros({4, 3});
  EXPECT_THROW(gate_choices(logits, {}, 3, 1), c10::Error);
  EXPECT_THROW(gate_choices(logits, {}, 2, 4), c10::Error);
  EXPECT_THROW(gate_choices(at::zeros({4, 1}), {}, 2, 2), c10::Error);
  EXPECT_THROW(gate_choices(logits, at::ones({4}), 2, 1), c10::Error);
  EXPECT_THROW(gate_balance(at::full({4, 1}, 3, at::kLong), at::ones({2, 1, 3}, at::kDouble), 1),
               c10::Error);
}

// exp is the GPU's fast one, good to 2^-21 of its result.
TEST(GateChoicesCuda, EqualTheirTwin) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kDouble), 1e-14);
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kFloat), 0x1p-19);
}

TEST(GateChoicesCuda, OfEqualExpertsTheLowerNumberIsBetter) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_order_of_equals(at::kCUDA);
}

}  // namespace
}  // namespace ballast::experts
