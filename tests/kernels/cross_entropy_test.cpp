// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

TEST(CrossEntropy, ChunksOfAGpuAreFewAndAboutEqual) {
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_EQ(rows_of_logits(gpu, 8192, 50304), 8192);
  EXPECT_EQ(rows_of_logits(gpu, 16384, 50304), 8192);
  EXPECT_EQ(rows_of_logits(gpu, 65536, 50304), 9408);  // seven, the last with 9088
  EXPECT_EQ(rows_of_logits(gpu, 100, 50304), 128);
  EXPECT_EQ(rows_of_logits(gpu, 1 << 20, 256), 1 << 20);
  EXPECT_EQ(rows_of_logits(gpu, 100, int64_t{1} << 40), 64);
  for (const int64_t tokens : {1, 777, 10000, 100000, 1234567}) {
    const int64_t rows = rows_of_logits(gpu, tokens, 51200);
    EXPECT_LE(rows * 51200, int64_t{1} << 29);
    const int64_t chunks = (tokens + rows - 1) / rows;
    EXPECT_LT(chunks * rows - tokens, 64 * chunks) << "the last is short by more than rounding";
  }
}

TEST(CrossEntropy, NoRowsHaveNoLosses) {
  const Parameter embedding{at::ones({3, 2}), at::ones({3, 2})};
  const auto found =
      next_token_losses_and_gradient(at::ones({0, 2}), embedding, at::empty({0}, at::kLong), 1.0);
  EXPECT_EQ(found.losses.numel(), 0);
  EXPECT_EQ(found.gradient.numel(), 0);
}

// Losses of some rows, and their gradients in the place of the logits.
Tensor run(Tensor& logits, const Tensor& targets, double scale) {
  const bool wide = logits.scalar_type() == at::kDouble;
  const Tensor losses =
      at::full(targets.sizes(), 7, logits.options().dtype(wide ? at::kDouble : at::kFloat));
  softmax_cross_entropy_(logits, targets, scale, losses);
  return losses;
}

class CrossEntropyCuda : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(load_cuda_plugin().loaded);
    at::manual_seed(1);
  }
  static Tensor exact(const Tensor& x) { return x.cpu().to(at::kDouble); }
  Tensor logits(int64_t rows, int64_t vocabulary) const {
    return at::randn({rows, vocabulary}, at::kCUDA).mul_(3).to(GetParam());
  }
};

// Rows that end and begin within 16 bytes, rows of less than that, rows that fit shared memory and
// rows that do not.
TEST_P(CrossEntropyCuda, EqualsItsFormulaForRowsOfAnySize) {
  const auto dtype = GetParam();
  // Sums of 130 terms a thread and five more levels, in fp32 with 2^-24 for each; exponents up to
  // 40 are rounded by 40 x 2^-24. bf16 gradients are rounded by 2^-9.
  const double of_sums = dtype == at::kDouble ? 1e-13 : 2e-5;
  const double of_gradient = of_sums + (dtype == at::kBFloat16 ? 0x1p-8 : 0);
  for (const int64_t vocabulary :
       {1, 3, 7, 8, 15, 31, 63, 257, 1000, 4099, 50257, 50304, 51200, 60001, 131077}) {
    Tensor found = logits(9, vocabulary);
    const Tensor before = exact(found);
    Tensor targets = at::randint(vocabulary, {9}, at::device(at::kCUDA).dtype(at::kLong));
    targets[0] = 0;
    targets[1] = vocabulary - 1;
    targets[4] = -100;
    const double scale = 0.25;
    const Tensor losses = exact(run(found, targets, scale));

    const Tensor log_softmax = at::log_softmax(before, 1);
    const Tensor is_target =
        at::arange(vocabulary).unsqueeze(0).eq(targets.cpu().unsqueeze(1)).to(at::kDouble);
    const Tensor counts = targets.cpu().ge(0).to(at::kDouble);
    const Tensor loss = -(log_softmax * is_target).sum(1);
    EXPECT_LE((losses - loss).abs().max().item<double>(),
              of_sums * std::max(1.0, loss.max().item<double>()))
        << vocabulary;
    const Tensor gradient = (log_softmax.exp() - is_target) * scale * counts.unsqueeze(1);
    // What the target's element cancels is as large as the scale.
    const Tensor allowed = gradient.abs() * of_gradient + is_target * (scale * of_sums) + 1e-36;
    EXPECT_TRUE((exact(found) - gradient).abs().le(allowed).all().item<bool>()) << vocabulary;
  }
}

TEST_P(CrossEntropyCuda, TwoRunsGiveTheSameBits) {
  for (const int64_t vocabulary : {257, 50257, 131072}) {
    Tensor first = logits(33, vocabulary), second = first.clone();
    const Tensor targets = at::randint(vocabulary, {33}, at::device(at::kCUDA).dtype(at::kLong));
    EXPECT_TRUE(at::equal(run(first, targets, 1.0), run(second, targets, 1.0)));
    EXPECT_TRUE(at::equal(first, second));
  }
}

TEST_P(CrossEntropyCuda, ALogitOfMinusInfinityIsImpossible) {
  Tensor found = at::full({2, 50304}, -std::numeric_limits<double>::infinity(),
                          at::device(at::kCUDA).dtype(GetParam()));
  found.narrow(1, 100, 2).zero_();
  const Tensor losses =
      run(found, at::tensor({100, 101}, at::device(at::kCUDA).dtype(at::kLong)), 1.0);
  EXPECT_LE((exact(losses) - std::log(2.0)).abs().max().item<double>(), 1e-6);
  EXPECT_EQ(found[0][100].item<double>(), -0.5);
  EXPECT_EQ(found[0][101].item<double>(), 0.5);
  EXPECT_EQ(found.abs().sum().item<double>(), 2);
}

TEST_P(CrossEntropyCuda, ALogitThatIsNoNumberGivesALossThatIsNone) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Tensor found = logits(2, 5003);
    found[1][4000] = value;
    const Tensor losses =
        run(found, at::tensor({1, 2}, at::device(at::kCUDA).dtype(at::kLong)), 1.0);
    EXPECT_TRUE(std::isfinite(losses[0].item<double>()));
    EXPECT_FALSE(std::isfinite(losses[1].item<double>()));
  }
}

// Two chunks of the size of a training step, beside the same products in one piece.
TEST_P(CrossEntropyCuda, ChunksOfAStepEqualTheWholeStep) {
  if (GetParam() == at::kDouble) return;  // the same code, with 6.6 GB of logits
  const int64_t rows = 16384, vocabulary = 50304, width = 64;
  const auto options = at::device(at::kCUDA).dtype(GetParam());
  const Parameter embedding{at::randn({vocabulary, width}, options),
                            at::randn({vocabulary, width}, options)};
  const Tensor hidden = at::randn({rows, width}, options).mul_(0.1);
  const Tensor targets = at::randint(vocabulary, {rows}, at::device(at::kCUDA).dtype(at::kLong));
  const Tensor before = embedding.gradient.to(at::kFloat, false, /*copy=*/true);
  const auto found = next_token_losses_and_gradient(hidden, embedding, targets, 1.0);

  const Tensor wide = hidden.to(at::kFloat), words = embedding.value.to(at::kFloat);
  const Tensor log_softmax = at::log_softmax(at::mm(wide, words.t()), 1);
  const Tensor loss = -log_softmax.gather(1, targets.unsqueeze(1)).squeeze(1);
  // Logits are below 8 and rounded to bf16, by up to 2^-6; in fp32 the products may use TF32.
  EXPECT_LE((found.losses - loss).abs().max().item<double>(), 0x1p-6);
  const Tensor dlogits = log_softmax.exp().scatter_add(
      1, targets.unsqueeze(1), at::full({rows, 1}, -1, log_softmax.options()));
  const auto expect_close = [](const Tensor& got, const Tensor& want) {
    // Logits, gradients of logits and results are each rounded by up to 2^-9 of bf16.
    EXPECT_LE((got.to(at::kFloat) - want).abs().max().item<double>(),
              2e-2 * want.abs().max().item<double>());
  };
  expect_close(found.gradient, at::mm(dlogits, words));
  expect_close(embedding.gradient, before + at::mm(dlogits.t(), wide));
}

INSTANTIATE_TEST_SUITE_P(OfTypes, CrossEntropyCuda,
                         ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace ballast::kernels
