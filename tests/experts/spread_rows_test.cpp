// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/spread_rows.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/experts/expert_cases.h"
#include "tests/support/gradient_check.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// N sources with K places each, some of which are nowhere, in M rows, some of which are empty.
struct Places {
  int64_t sources, count, rows;
  std::vector<int64_t> source_of_row, rows_of_source;

  Places(int64_t n, int64_t k, int64_t m, double share_nowhere)
      : sources(n), count(k), rows(m), source_of_row(m, -1), rows_of_source(n * k, -1) {
    std::mt19937 random(7);
    std::vector<int64_t> order(m);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::bernoulli_distribution nowhere(share_nowhere);
    for (int64_t place = 0; place < n * k && !order.empty(); ++place) {
      if (nowhere(random)) continue;
      rows_of_source[place] = order.back();
      source_of_row[order.back()] = place / k;
      order.pop_back();
    }
  }
  Tensor source_tensor(at::Device device) const {
    return at::tensor(source_of_row, at::kLong).to(device);
  }
  Tensor rows_tensor(at::Device device) const {
    return at::tensor(rows_of_source, at::kLong).view({sources, count}).to(device);
  }
};

const std::vector<Places>& places_cases() {
  static const std::vector<Places> cases{{5, 2, 12, 0.2}, {7, 1, 7, 0},     {6, 3, 10, 0.5},
                                         {4, 2, 3, 0},    {3, 2, 4, 1},     {0, 2, 3, 0},
                                         {3, 2, 0, 0},    {300, 2, 600, 0}, {350, 2, 480, 0.1}};
  return cases;
}

// The definitions, row by row, in operations that autograd differentiates.
Tensor plain_spread_rows(const Tensor& x, const Places& places) {
  std::vector<Tensor> rows{at::zeros({0, x.size(1)}, x.options())};
  for (const int64_t source : places.source_of_row) {
    rows.push_back(source < 0 ? at::zeros({1, x.size(1)}, x.options()) : x.narrow(0, source, 1));
  }
  return at::cat(rows);
}

Tensor plain_mix_rows(const Tensor& h, const Tensor& y, const Places& places,
                      const Tensor& weights) {
  std::vector<Tensor> rows{h.narrow(0, 0, 0)};
  for (int64_t j = 0; j < places.sources; ++j) {
    Tensor mixed = h[j];
    for (int64_t k = 0; k < places.count; ++k) {
      const int64_t row = places.rows_of_source[j * places.count + k];
      if (row >= 0) mixed = mixed + weights[j][k] * (y[row] - h[j]);
    }
    rows.push_back(mixed.unsqueeze(0));
  }
  return at::cat(rows);
}

struct SpreadRows : ExpertKernels {
  at::Device device() const { return GetParam().device; }
  Tensor random_weights(at::IntArrayRef shape) const {
    const auto type = GetParam().dtype == at::kDouble ? at::kDouble : at::kFloat;
    return at::rand(shape, at::kDouble).to(device(), type);
  }
};

Tensor gradient_of(const Tensor& leaf) {
  return leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
}

TEST_P(SpreadRows, EqualsItsTwin) {
  for (const Places& places : places_cases()) {
    SCOPED_TRACE(::testing::Message() << places.sources << " sources, " << places.rows << " rows");
    for (const int64_t width : {5, 136}) {
      const Tensor x = random({places.sources, width}), dy = random({places.rows, width});
      Tensor x1 = x.clone().requires_grad_(), x2 = exact(x).requires_grad_();
      const Tensor y1 =
          spread_rows(x1, places.source_tensor(device()), places.rows_tensor(device()));
      const Tensor y2 = plain_spread_rows(x2, places);
      EXPECT_TRUE(at::equal(exact(y1), y2.detach()));
      torch::autograd::backward({y1}, {dy});
      torch::autograd::backward({y2 + x2.sum() * 0}, {exact(dy)});
      expect_close(x1.grad(), x2.grad(), "gradient");
    }
  }
}

TEST_P(SpreadRows, MixedEqualTheirTwin) {
  for (const Places& places : places_cases()) {
    SCOPED_TRACE(::testing::Message() << places.sources << " sources, " << places.rows << " rows");
    for (const int64_t width : {5, 136}) {
      const Tensor h = random({places.sources, width}), y = random({places.rows, width}),
                   weights = random_weights({places.sources, places.count}),
                   dmixed = random({places.sources, width});
      Tensor h1 = h.clone().requires_grad_(), h2 = exact(h).requires_grad_(),
             y1 = y.clone().requires_grad_(), y2 = exact(y).requires_grad_(),
             w1 = weights.clone().requires_grad_(), w2 = exact(weights).requires_grad_();
      const Tensor mixed1 =
          mix_rows(h1, y1, places.rows_tensor(device()), places.source_tensor(device()), w1);
      const Tensor mixed2 = plain_mix_rows(h2, y2, places, w2);
      expect_close(mixed1, mixed2, "result");
      torch::autograd::backward({mixed1}, {dmixed});
      torch::autograd::backward({mixed2}, {exact(dmixed)});
      expect_close(h1.grad(), gradient_of(h2), "gradient of h");
      expect_close(y1.grad(), gradient_of(y2), "gradient of y");
      expect_close(w1.grad(), gradient_of(w2), "gradient of the weights");
    }
  }
}

TEST_P(SpreadRows, WhatGoesNowherePassesThrough) {
  const Tensor h = random({2, 9}), y = random({1, 9});
  const Tensor mixed =
      mix_rows(h, y, longs({-1, -1, 0, -3}).view({2, 2}), longs({1}), random_weights({2, 2}));
  EXPECT_TRUE(at::equal(mixed[0], h[0]));
  EXPECT_FALSE(at::equal(mixed[1], h[1]));
}

TEST_P(SpreadRows, TakesRowsThatLieApart) {
  const Places places(5, 2, 10, 0);
  const Tensor x = random({5, 20}).narrow(1, 4, 9), y = random({10, 20}).narrow(1, 4, 9);
  const Tensor source = places.source_tensor(device()), rows = places.rows_tensor(device()),
               weights = random_weights({2, 5}).t();
  EXPECT_TRUE(at::equal(spread_rows(x, source, rows), spread_rows(x.contiguous(), source, rows)));
  EXPECT_TRUE(at::equal(mix_rows(x, y, rows, source, weights),
                        mix_rows(x.contiguous(), y.contiguous(), rows, source, weights)));
}

TEST_P(SpreadRows, RefusesWhatCannotBe) {
  const Tensor x = random({2, 3}), y = random({4, 3}), source = longs({0, 0, 1, 1}),
               rows = longs({0, 1, 2, 3}).view({2, 2}), weights = random_weights({2, 2});
  EXPECT_THROW(spread_rows(x, source, rows.view({4, 1})), c10::Error);
  EXPECT_THROW(spread_rows(x, source.to(at::kInt), rows), c10::Error);
  EXPECT_THROW(mix_rows(x, y, rows, longs({0}), weights), c10::Error);
  EXPECT_THROW(mix_rows(x, random({4, 2}), rows, source, weights), c10::Error);
  EXPECT_THROW(mix_rows(x, y, rows, source, weights.to(at::kHalf)), c10::Error);
  EXPECT_THROW(mix_rows(x, y, rows, source, weights.narrow(1, 0, 1)), c10::Error);
  // On a GPU the kernel's assertion would end the process's use of the device.
  if (GetParam().device != at::kCPU) return;
  EXPECT_THROW(spread_rows(x, longs({2, 0, 1, 1}), rows), c10::Error);
  EXPECT_THROW(mix_rows(x, y, rows + 1, source, weights), c10::Error);
}

TEST(MixRowsGradient, EqualsCentralDifferences) {
  at::manual_seed(2);
  const Places places(5, 2, 8, 0.3);
  const Tensor source = places.source_tensor(at::kCPU), rows = places.rows_tensor(at::kCPU);
  Tensor x = at::randn({5, 6}, at::kDouble).requires_grad_(),
         h = at::randn({5, 6}, at::kDouble).requires_grad_(),
         weights = at::rand({5, 2}, at::kDouble).requires_grad_();
  const Tensor direction = at::randn({5, 6}, at::kDouble);
  const auto loss = [&] {
    const Tensor y = spread_rows(x, source, rows).square();
    return (mix_rows(h, y, rows, source, weights) * direction).sum();
  };
  loss().backward();
  const auto number = [&] { return loss().item<double>(); };
  test::expect_gradient(x.detach(), x.grad(), number, "x");
  test::expect_gradient(h.detach(), h.grad(), number, "h");
  test::expect_gradient(weights.detach(), weights.grad(), number, "weights");
}

INSTANTIATE_TEST_SUITE_P(Cpu, SpreadRows, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SpreadRows, cuda_cases(), case_name);

}  // namespace
}  // namespace ballast::experts
