// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/rows_alone.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/cached_attention.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/layer_norm.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

// What an operation on rows gives where these are computed alone.
Tensor alone(const std::function<Tensor()>& operation) {
  const at::NoGradGuard no_grad;
  const RowsAlone rows_alone;
  return operation();
}

using OfRows = std::function<Tensor(const Tensor&)>;

// Each row by itself, and any part of the rows, have the bits that they have among all.
void expect_alone(const OfRows& operation, const Tensor& x) {
  const Tensor all = alone([&] { return operation(x); });
  for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{8}}) {
    for (int64_t first = 0; first + count <= x.size(0); first += count) {
      const Tensor part = alone([&] { return operation(x.narrow(0, first, count)); });
      ASSERT_TRUE(part.equal(all.narrow(0, first, count))) << count << " rows from " << first;
    }
  }
}

// In fp64, without our loops.
void expect_near(const OfRows& operation, const OfRows& plain, const Tensor& x, double tolerance) {
  const Tensor got = alone([&] { return operation(x); }).to(at::kDouble);
  EXPECT_LE((got - plain(x.to(at::kDouble))).abs().max().item<double>(), tolerance);
}

Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::kDouble).to(type);
}

class RowsAloneOf : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  // Results of about one, of a hundred terms or so.
  double tolerance() const { return GetParam() == at::kFloat ? 3e-5 : 1e-12; }
};
INSTANTIATE_TEST_SUITE_P(Types, RowsAloneOf, ::testing::Values(at::kFloat, at::kDouble));

TEST_P(RowsAloneOf, Products) {
  for (const auto& [inner, outputs] : {std::pair{5, 3}, {16, 16}, {100, 37}, {64, 1100}}) {
    const Tensor weight = random({outputs, inner}, GetParam()),
                 bias = random({outputs}, GetParam());
    const Tensor x = random({17, inner}, GetParam());
    for (const Activation end : {Activation::kNone, Activation::kRelu}) {
      const auto product = [&](const Tensor& given) {
        return multiply_transposed(given, weight.to(given.scalar_type()),
                                   bias.to(given.scalar_type()), end);
      };
      expect_alone(product, x);
      expect_near(product, product, x, tolerance());
      // A shard may have no rows at all.
      EXPECT_EQ(alone([&] { return product(x.narrow(0, 0, 0)); }).size(0), 0);
    }
  }
}

TEST_P(RowsAloneOf, ProductsOfLessAndMore) {
  const Tensor weight = random({40, 50}, GetParam()), x = random({4, 50}, GetParam());
  const Tensor all = alone([&] { return multiply_transposed(x, weight, {}); });
  for (const int64_t first : {0, 1, 15, 39}) {
    const Tensor some =
        alone([&] { return multiply_transposed(x, weight.narrow(0, first, 40 - first), {}); });
    EXPECT_TRUE(some.equal(all.narrow(1, first, 40 - first))) << first;
  }
  const Tensor wide = random({4, 60}, GetParam());
  wide.narrow(1, 3, 50).copy_(x);
  EXPECT_TRUE(
      alone([&] { return multiply_transposed(wide.narrow(1, 3, 50), weight, {}); }).equal(all))
      << "wherever rows lie";
}

TEST_P(RowsAloneOf, Norms) {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const int64_t width : {7, 32, 75}) {
      const Tensor weight = random({width}, GetParam()), bias = random({width}, GetParam());
      const Tensor x = random({9, width}, GetParam()), change = random({9, width}, GetParam());
      const auto norm = [&](const Tensor& given) {
        const auto type = given.scalar_type();
        const Parameter no_bias, some_bias{bias.to(type), {}};
        return layer_norm(given, {weight.to(type), {}},
                          kind == NormKind::kLayer ? some_bias : no_bias, {kind, 1e-5});
      };
      expect_alone(norm, x);
      expect_near(norm, norm, x, tolerance());
      const auto sum = [&] {
        const Parameter no_bias, some_bias{bias, {}};
        return add_layer_norm(x, change, {weight, {}},
                              kind == NormKind::kLayer ? some_bias : no_bias, {kind, 1e-5});
      };
      const at::NoGradGuard no_grad;
      const RowsAlone rows_alone;
      EXPECT_TRUE(sum().sum.equal(x + change));
      EXPECT_TRUE(sum().normed.equal(norm(x + change)));
    }
  }
}

TEST_P(RowsAloneOf, Activations) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu2, Activation::kSwiglu}) {
    const Tensor x = random({9, 74}, GetParam()).mul_(4);
    x[0][0] = -200;  // far out
    x[0][1] = 200;
    const auto active = [&](const Tensor& given) { return activate(given, activation); };
    expect_alone(active, x);
    // fp32 of numbers up to a hundred, of squares up to 40000
    expect_near(active, active, x, GetParam() == at::kFloat ? 5e-3 : 1e-10);
    const Tensor small = random({9, 74}, GetParam());
    expect_near(active, active, small, GetParam() == at::kFloat ? 2e-6 : 1e-14);
  }
}

TEST_P(RowsAloneOf, CapsOfLogits) {
  const Tensor x = random({9, 75}, GetParam()).mul_(10);
  const auto cap = [](const Tensor& given) { return cap_logits(given, 5); };
  expect_alone(cap, x);
  expect_near(cap, cap, x, tolerance());
}

TEST_P(RowsAloneOf, TurnedHeads) {
  const Heads heads{4, 2, 6};
  const Tensor angles = at::randn({9, 3}, at::kDouble);
  const Tensor query_norm = random({6}, GetParam()), key_norm = random({6}, GetParam());
  for (const bool norms : {false, true}) {
    const Tensor x = random({9, heads.columns()}, GetParam());
    const auto turned = [&](const Tensor& given, int64_t first) {
      const auto type = given.scalar_type();
      Turning turning;
      turning.cosines = angles.cos().to(type).narrow(0, first, given.size(0));
      turning.sines = angles.sin().to(type).narrow(0, first, given.size(0));
      if (norms) {
        turning.query_norm.value = query_norm.to(type);
        turning.key_norm.value = key_norm.to(type);
      }
      return turned_heads(given, given.size(0), heads, turning);
    };
    const Tensor all = alone([&] { return turned(x, 0); });
    for (int64_t row = 0; row < 9; ++row) {
      EXPECT_TRUE(
          alone([&] { return turned(x.narrow(0, row, 1), row); }).equal(all.narrow(0, row, 1)));
    }
    expect_near([&](const Tensor& given) { return turned(given, 0); },
                [&](const Tensor& given) { return turned(given, 0); }, x, tolerance());
  }
}

// Five texts of different lengths, in rows of a cache for eight.
struct Cached {
  explicit Cached(at::ScalarType type)
      : qkv(random({5, heads.columns()}, type)),
        keys(random({8, 2, 40, 6}, type)),
        values(random({8, 2, 40, 6}, type)) {}

  // The texts from `first` on; keys and values of new tokens go into a copy.
  Tensor attend(int64_t first, int64_t count) const {
    return cached_attention(qkv.narrow(0, first, count), heads,
                            {keys.clone(), values.clone(), row.narrow(0, first, count),
                             position.narrow(0, first, count)});
  }

  Heads heads{4, 2, 6};
  Tensor qkv, keys, values;
  Tensor row = at::tensor({3, 0, 7, 1, 2}, at::kLong),
         position = at::tensor({0, 39, 7, 16, 20}, at::kLong);
};

TEST_P(RowsAloneOf, CachedAttention) {
  const at::NoGradGuard no_grad;
  const Cached c(GetParam());
  const Tensor all = c.attend(0, 5);
  for (int64_t text = 0; text < 5; ++text) {
    EXPECT_TRUE(c.attend(text, 1).equal(all.narrow(0, text, 1))) << text;
    const int64_t row = c.row[text].item<int64_t>(), seen = c.position[text].item<int64_t>() + 1;
    const Tensor mine = c.qkv[text].to(at::kDouble).view({8, 6});  // 4 queries, 2 keys, 2 values
    for (int64_t head = 0; head < 4; ++head) {
      const auto with_new = [&](const Tensor& cache, int64_t own) {
        Tensor seen_here = cache[row][head / 2].narrow(0, 0, seen).to(at::kDouble).clone();
        seen_here[seen - 1].copy_(mine[own + head / 2]);
        return seen_here;  // [seen, W]
      };
      const Tensor weights = (with_new(c.keys, 4).mv(mine[head]) / std::sqrt(6.0)).softmax(0);
      const Tensor expected = with_new(c.values, 6).t().mv(weights);
      const Tensor got = all[text].to(at::kDouble).view({4, 6})[head];
      EXPECT_LE((got - expected).abs().max().item<double>(), tolerance()) << text << ", " << head;
    }
  }
}

TEST_P(RowsAloneOf, CachedAttentionOfSeveralTokensOfAText) {
  const at::NoGradGuard no_grad;
  Cached c(GetParam());
  c.row = at::tensor({3, 3, 0, 3, 0}, at::kLong);
  c.position = at::tensor({7, 8, 20, 9, 21}, at::kLong);
  const Tensor together = c.attend(0, 5), keys = c.keys.clone(), values = c.values.clone();
  for (int64_t token = 0; token < 5; ++token) {  // after another
    const Tensor one =
        cached_attention(c.qkv.narrow(0, token, 1), c.heads,
                         {keys, values, c.row.narrow(0, token, 1), c.position.narrow(0, token, 1)});
    EXPECT_TRUE(one.equal(together.narrow(0, token, 1))) << token;
  }
}

TEST(CachedAttention, KeepsTheNewTokensAndRefusesPlacesThatAreNotThere) {
  const at::NoGradGuard no_grad;
  const Cached c(at::kFloat);
  const Tensor keys = c.keys.clone(), values = c.values.clone();
  cached_attention(c.qkv, c.heads, {keys, values, c.row, c.position});
  const Tensor own = c.qkv.view({5, 8, 6});
  EXPECT_TRUE(keys[7].select(1, 7).equal(own[2].narrow(0, 4, 2)));
  EXPECT_TRUE(values[7].select(1, 7).equal(own[2].narrow(0, 6, 2)));
  EXPECT_EQ(keys.ne(c.keys).sum().item<int64_t>(), 5 * 2 * 6) << "nothing else is written";
  const Tensor beyond = c.position.clone().fill_(40);
  EXPECT_THROW(cached_attention(c.qkv, c.heads, {keys, values, c.row, beyond}), c10::Error);
}

TEST(RowsAlone, HoldOnTheirThreadWhileTheyAreThere) {
  const Tensor x = at::ones({1});
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(RowsAlone::hold_for(x));
  {
    const RowsAlone outer;
    { const RowsAlone inner; }
    EXPECT_TRUE(RowsAlone::hold_for(x));
    EXPECT_FALSE(RowsAlone::hold_for(x.to(at::kBFloat16)));
    const at::AutoGradMode with_graph(true);
    EXPECT_FALSE(RowsAlone::hold_for(x)) << "autograd knows no such operations";
  }
  EXPECT_FALSE(RowsAlone::hold_for(x));
}

}  // namespace
}  // namespace ballast::kernels
