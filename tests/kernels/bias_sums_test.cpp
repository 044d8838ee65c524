// SPDX-License-Identifier: Apache-2.0
// Both passes against the same in double, of the same inputs.
#include "ballast/kernels/bias_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"
#include "tests/kernels/sum_bounds.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using test::exact;

struct Case {
  at::DeviceType device;
  at::ScalarType dtype;
  int64_t stack;  // of how many matrices; 0: no stack
  int64_t rows, width;
};

// gtest names a case by this.
void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.device << " " << c.dtype << " " << c.stack << "x" << c.rows << "x" << c.width;
}

class BiasSums : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA) {
      ASSERT_TRUE(load_cuda_plugin().loaded);
    }
    at::manual_seed(1);
    y = random({GetParam().rows, GetParam().width});
    sum = random({GetParam().width});
  }

  static Tensor random(std::vector<int64_t> shape) {
    if (GetParam().stack > 0) shape.insert(shape.begin(), GetParam().stack);
    return at::randn(shape, at::device(GetParam().device)).to(GetParam().dtype);
  }

  // Rows that our kernel takes, if they are dense.
  static bool is_one_pass(const Tensor& rows) {
    const Case& c = GetParam();
    return c.device == at::kCUDA && c.dtype == at::kBFloat16 && c.width % 8 == 0 &&
           rows.is_contiguous();
  }

  // `got` was `before` plus the rows of `terms`. The result is rounded and, unless all was one
  // pass, the sum before it too.
  static void expect_added(const Tensor& got, const Tensor& before, const Tensor& terms) {
    const at::ScalarType dtype = GetParam().dtype;
    const Tensor columns = test::exact(terms).sum(-2), want = test::exact(before) + columns;
    const double sum_rounded = is_one_pass(terms) ? 0 : 1;
    const Tensor allowed = (sum_rounded * columns.abs() + want.abs()) * test::unit_of(dtype) +
                           test::summing(test::exact(terms).abs().sum(-2), GetParam().rows, dtype) +
                           1e-30;
    EXPECT_LE(((test::exact(got) - want).abs() / allowed).max().item<double>(), 1.0);
  }

  Tensor y, sum;
};

TEST_P(BiasSums, RowsAreAdded) {
  const Tensor before = sum.clone(), y_before = y.clone();
  add_rows(sum, y);
  expect_added(sum, before, y);
  EXPECT_TRUE(at::equal(y, y_before));
}

TEST_P(BiasSums, ReluIsTakenBackExactly) {
  Tensor active = random({GetParam().rows, GetParam().width}).relu_();
  const Tensor want = at::where(active.gt(0), y, at::zeros_like(y));
  Tensor alone = y.clone();
  take_back_relu(alone, active, {});
  EXPECT_TRUE(at::equal(alone, want));

  const Tensor before = sum.clone();
  take_back_relu(y, active, sum);
  EXPECT_TRUE(at::equal(y, want));
  expect_added(sum, before, want);
}

TEST_P(BiasSums, AreTheSameEachTime) {
  const Tensor again = sum.clone();
  add_rows(sum, y);
  add_rows(again, y);
  EXPECT_TRUE(at::equal(sum, again));
}

// Sums of a stack lie apart in the flat gradients, rows in a larger tensor.
TEST_P(BiasSums, TakeMemoryThatLiesApart) {
  const Case& c = GetParam();
  const Tensor wide = random({c.rows, c.width + 11}), rows = wide.narrow(-1, 3, c.width);
  const Tensor larger = random({c.width + 5}), place = larger.narrow(-1, 0, c.width);
  const Tensor before = larger.clone();
  add_rows(place, rows);
  expect_added(place, before.narrow(-1, 0, c.width), rows);
  larger.copy_(before);
  add_rows(place, y);
  expect_added(place, before.narrow(-1, 0, c.width), y);
  EXPECT_TRUE(at::equal(larger.narrow(-1, c.width, 5), before.narrow(-1, c.width, 5)));
}

TEST(SumsForBiases, RefuseWhatDoesNotFit) {
  const Tensor y = at::ones({3, 4}), sum = at::zeros({4});
  EXPECT_ANY_THROW(add_rows(at::zeros({5}), y));
  EXPECT_ANY_THROW(add_rows(at::zeros({2, 4}), y));
  EXPECT_ANY_THROW(add_rows(at::zeros({2, 4}), at::ones({3, 3, 4})));
  EXPECT_ANY_THROW(add_rows(sum, at::ones({4})));
  EXPECT_ANY_THROW(take_back_relu(y, at::ones({2, 3, 4}), sum));
  EXPECT_ANY_THROW(add_rows(sum, at::ones({3, 4}).requires_grad_()));
  EXPECT_TRUE(at::equal(sum, at::zeros({4})));
}

std::vector<Case> cases(at::DeviceType device, const std::vector<at::ScalarType>& types,
                        const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Case> all;
  for (const at::ScalarType type : types) {
    for (const auto& s : shapes) all.push_back({device, type, s[0], s[1], s[2]});
  }
  return all;
}

const std::vector<std::vector<int64_t>> kSmall = {{0, 37, 24}, {0, 1, 8},    {0, 0, 16},
                                                  {0, 33, 17}, {3, 37, 264}, {5, 129, 40},
                                                  {2, 0, 8},   {3, 5, 23}};
INSTANTIATE_TEST_SUITE_P(Cpu, BiasSums,
                         ::testing::ValuesIn(cases(at::kCPU, {at::kFloat, at::kDouble}, kSmall)));
INSTANTIATE_TEST_SUITE_P(
    SmallCuda, BiasSums,
    ::testing::ValuesIn(cases(at::kCUDA, {at::kBFloat16, at::kFloat, at::kDouble}, kSmall)));
// Feed-forwards of GPT-2 and of 1.3B, layers of 8 and of 128 experts, and rows that end anywhere.
INSTANTIATE_TEST_SUITE_P(LargeCuda, BiasSums,
                         ::testing::ValuesIn(cases(at::kCUDA, {at::kBFloat16},
                                                   {{0, 32768, 3072},
                                                    {0, 8192, 8192},
                                                    {0, 16385, 768},
                                                    {8, 2048, 4096},
                                                    {128, 128, 4096},
                                                    {3, 4099, 776}})));

}  // namespace
}  // namespace ballast::kernels
