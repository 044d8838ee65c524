// SPDX-License-Identifier: Apache-2.0
// Each product against the same in double, of the same inputs.
#include "ballast/kernels/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

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
  int64_t rows, in, out;
};

// gtest names a case by this.
void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.device << " " << c.dtype << " " << c.stack << "x" << c.rows << "x" << c.in << "x"
          << c.out;
}

class Products : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA) {
      ASSERT_TRUE(load_cuda_plugin().loaded);
      // libtorch's own products, where ours do not fit, would round parts of a sum to bf16.
      at::globalContext().setAllowBF16ReductionCuBLAS(false);
    }
    at::manual_seed(1);
    const Case& c = GetParam();
    x = random({c.rows, c.in});
    weight = random({c.out, c.in});
    bias = random({c.out});
    dy = random({c.rows, c.out});
  }

  Tensor random(std::vector<int64_t> shape) const {
    if (GetParam().stack > 0) shape.insert(shape.begin(), GetParam().stack);
    return at::randn(shape, at::device(GetParam().device)).to(GetParam().dtype);
  }
  static Tensor transposed(const Tensor& x) { return x.transpose(-2, -1); }
  static Tensor product(const Tensor& a, const Tensor& b) { return at::matmul(exact(a), exact(b)); }
  // The sum of the magnitudes of a product's terms, which bounds what rounding them can do.
  static Tensor terms(const Tensor& a, const Tensor& b) { return product(a.abs(), b.abs()); }

  // What one rounding of `x` to the type in question may change.
  static Tensor rounding(const Tensor& x) { return x.abs() * test::unit_of(GetParam().dtype); }
  static Tensor summing(const Tensor& terms, int64_t length) {
    return test::summing(terms, length, GetParam().dtype);
  }

  // What adding a product to `want` less itself may change. In bf16 the CUDA libraries, libtorch's
  // addmm_ too, round the product before they add it: seen on an H200.
  static Tensor adding(const Tensor& want, const Tensor& product) {
    return rounding(want) + (GetParam().dtype == at::kBFloat16 ? rounding(product)
                                                               : Tensor(at::zeros_like(product)));
  }

  static void expect_within(const Tensor& got, const Tensor& want, const Tensor& allowed,
                            const char* what) {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    ASSERT_EQ(got.scalar_type(), GetParam().dtype) << what;
    if (got.numel() == 0) return;
    EXPECT_LE(((exact(got) - want).abs() / (allowed + 1e-30)).max().item<double>(), 1.0) << what;
  }
  // A sum of `length` terms that is rounded once.
  static void expect_close(const Tensor& got, const Tensor& want, const Tensor& terms,
                           int64_t length, const char* what) {
    expect_within(got, want, rounding(want) + summing(terms, length), what);
  }

  Tensor x, weight, bias, dy;
};

TEST_P(Products, OfAForwardPass) {
  const Tensor want = product(x, transposed(weight)), all = terms(x, transposed(weight)),
               shift = exact(bias).unsqueeze(-2), all_shifted = all + shift.abs();
  const int64_t length = GetParam().in;
  expect_close(multiply_transposed(x, weight, {}), want, all, length, "plain");
  expect_close(multiply_transposed(x, weight, bias), want + shift, all_shifted, length, "bias");
  const Tensor relu = (want + shift).relu();
  expect_close(multiply_transposed(x, weight, bias, Activation::kRelu), relu, all_shifted, length,
               "relu");
  expect_close(multiply_transposed(x, weight, {}, Activation::kRelu), want.relu(), all, length,
               "relu without a bias");
}

TEST_P(Products, OfABackwardPass) {
  const Tensor want = product(dy, weight), all = terms(dy, weight);
  expect_close(multiply_weight(dy, weight), want, all, GetParam().out, "plain");
  const Tensor larger = random({GetParam().rows + 3, GetParam().in}), before = larger.clone();
  const Tensor rows = larger.narrow(-2, 1, GetParam().rows);
  multiply_weight_out(rows, dy, weight);
  expect_close(rows, want, all, GetParam().out, "into rows of a larger tensor");
  for (const int64_t row : {int64_t{0}, GetParam().rows + 1, GetParam().rows + 2}) {
    EXPECT_TRUE(at::equal(larger.select(-2, row), before.select(-2, row))) << row;
  }
}

// From the wide side back: relu was taken of [T, O], and its gradient comes through [I, O].
TEST_P(Products, AreMaskedWhereReluWasZero) {
  const Tensor active = multiply_transposed(x, weight, bias, Activation::kRelu);
  const Tensor down = transposed(weight).contiguous();  // [I, O]
  const Tensor dx = random({GetParam().rows, GetParam().in}), all = terms(dx, down);
  const Tensor want = product(dx, down) * exact(active.gt(0));
  expect_close(multiply_weight_masked(dx, down, active, {}), want, all, GetParam().in, "masked");

  const Tensor sum = random({GetParam().out}), before = exact(sum);
  const Tensor masked = multiply_weight_masked(dx, down, active, sum);
  expect_close(masked, want, all, GetParam().in, "masked, with its sum");
  // The sum is rounded and then added; its terms were rounded before they were summed.
  const Tensor columns = want.sum(-2), after = before + columns;
  expect_within(sum, after,
                rounding(columns) + rounding(after) + rounding(want).sum(-2) +
                    summing(all, GetParam().in).sum(-2),
                "sum of the masked");
}

TEST_P(Products, OfWeightGradientsAreWritten) {
  const Tensor sum = random({GetParam().out, GetParam().in});
  write_outer_products(sum, dy, x);
  expect_close(sum, product(transposed(dy), x), terms(transposed(dy), x), GetParam().rows,
               "weights");
}

// What is in a sum that is not begun is of no meaning, even if it is not a number.
TEST_P(Products, OfWeightGradientsBeginASumAndAreAddedToIt) {
  const Tensor written = at::full_like(random({GetParam().out, GetParam().in}), std::nan("")),
               once = at::empty_like(written), twice = at::empty_like(written);
  const GradientSum sum(written, at::ones({}, at::kBool));
  write_outer_products(once, dy, x);
  twice.copy_(once);
  add_outer_products(twice, dy, x);
  add_weight_gradients(sum, {}, dy, x);
  EXPECT_TRUE(at::equal(written, once));
  EXPECT_FALSE(sum.begins()) << "it is begun";
  add_weight_gradients(sum, {}, dy, x);
  EXPECT_TRUE(at::equal(written, twice));
  const GradientSum other(written, at::ones({}, at::kBool));
  EXPECT_TRUE(at::equal(other.begun(), at::zeros_like(written))) << "for those who only add";
  EXPECT_FALSE(other.begins());
}

TEST_P(Products, OfWeightGradientsAreAdded) {
  const int64_t length = GetParam().rows;
  const Tensor weight_sum = random({GetParam().out, GetParam().in}),
               bias_sum = random({GetParam().out}),
               weight_want = exact(weight_sum) + product(transposed(dy), x),
               weight_terms = exact(weight_sum).abs() + terms(transposed(dy), x),
               bias_before = exact(bias_sum), columns = exact(dy).sum(-2),
               bias_terms = exact(dy).abs().sum(-2);
  const Tensor weight_alone = weight_sum.clone(), bias_alone = bias_sum.clone(),
               outer = weight_sum.clone();
  add_weight_gradients(weight_sum, bias_sum, dy, x);
  add_weight_gradients(weight_alone, {}, dy, x);
  add_weight_gradients(Tensor(), bias_alone, dy, x);
  add_outer_products(outer, dy, x);
  for (const Tensor& sum : {weight_sum, weight_alone, outer}) {
    expect_within(sum, weight_want,
                  adding(weight_want, product(transposed(dy), x)) + summing(weight_terms, length),
                  "weights");
  }
  // The columns' sums are rounded, then added.
  const Tensor bias_want = bias_before + columns;
  for (const Tensor& sum : {bias_sum, bias_alone}) {
    expect_within(sum, bias_want,
                  rounding(columns) + rounding(bias_want) + summing(bias_terms, length), "bias");
  }
}

// Rows and stacks that lie apart, and memory that starts anywhere.
TEST_P(Products, TakeRowsOfALargerTensor) {
  const Case& c = GetParam();
  for (const int64_t offset : {8, 3}) {
    const Tensor wide = random({c.rows, c.in + 16}), wide_dy = random({c.rows, c.out + 16}),
                 x_here = wide.narrow(-1, offset, c.in),
                 dy_here = wide_dy.narrow(-1, offset, c.out);
    const Tensor sum = random({c.out, c.in}),
                 want = exact(sum) + product(transposed(dy_here), x_here),
                 all = exact(sum).abs() + terms(transposed(dy_here), x_here);
    add_weight_gradients(sum, {}, dy_here, x_here);
    expect_within(sum, want,
                  adding(want, product(transposed(dy_here), x_here)) + summing(all, c.rows),
                  "weights");
    expect_close(multiply_transposed(x_here, weight, {}), product(x_here, transposed(weight)),
                 terms(x_here, transposed(weight)), c.in, "forward");
    expect_close(multiply_weight(dy_here, weight), product(dy_here, weight), terms(dy_here, weight),
                 c.out, "backward");
  }
}

TEST_P(Products, AreTheSameEachTime) {
  const Tensor first = multiply_transposed(x, weight, bias, Activation::kRelu),
               second = multiply_transposed(x, weight, bias, Activation::kRelu);
  EXPECT_TRUE(at::equal(first, second));
  const Tensor down = transposed(weight).contiguous(),
               dx = random({GetParam().rows, GetParam().in}), up_sum = at::zeros_like(bias),
               up_again = at::zeros_like(bias);
  EXPECT_TRUE(at::equal(multiply_weight_masked(dx, down, first, up_sum),
                        multiply_weight_masked(dx, down, second, up_again)));
  EXPECT_TRUE(at::equal(up_sum, up_again));
  const Tensor sum = at::zeros_like(weight), again = at::zeros_like(weight),
               bias_sum = at::zeros_like(bias), bias_again = at::zeros_like(bias);
  add_weight_gradients(sum, bias_sum, dy, x);
  add_weight_gradients(again, bias_again, dy, x);
  EXPECT_TRUE(at::equal(sum, again));
  EXPECT_TRUE(at::equal(bias_sum, bias_again));
}

std::vector<Case> cases(at::DeviceType device, std::vector<at::ScalarType> types,
                        const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Case> all;
  for (const at::ScalarType type : types) {
    for (const auto& s : shapes) all.push_back({device, type, s[0], s[1], s[2], s[3]});
  }
  return all;
}

// No rows, one, and odd numbers of everything; sizes that no vector divides.
const std::vector<std::vector<int64_t>> kSmall = {{0, 37, 24, 40}, {0, 1, 16, 8},   {0, 0, 16, 8},
                                                  {0, 33, 17, 23}, {3, 37, 24, 40}, {3, 1, 16, 136},
                                                  {2, 0, 16, 8},   {3, 5, 17, 23}};
INSTANTIATE_TEST_SUITE_P(Cpu, Products,
                         ::testing::ValuesIn(cases(at::kCPU, {at::kFloat, at::kDouble}, kSmall)));
INSTANTIATE_TEST_SUITE_P(
    SmallCuda, Products,
    ::testing::ValuesIn(cases(at::kCUDA, {at::kBFloat16, at::kFloat, at::kDouble}, kSmall)));
// Dense layers, layers of 8 and of 128 experts, and a vocabulary no vector divides.
INSTANTIATE_TEST_SUITE_P(LargeCuda, Products,
                         ::testing::ValuesIn(cases(at::kCUDA, {at::kBFloat16},
                                                   {{0, 16384, 1024, 4096},
                                                    {0, 8192, 2048, 6144},
                                                    {0, 2048, 768, 50304},
                                                    {0, 512, 768, 50257},
                                                    {0, 1000, 768, 3072},
                                                    {8, 2048, 1024, 4096},
                                                    {128, 128, 1024, 4096}})));

}  // namespace
}  // namespace ballast::kernels
