// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/price_average.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ballast/kernels/upload.h"

namespace ballast::experts {

using at::Tensor;

namespace {

// Of shares tried from 1/50 to 1/2 (benchmarks/results/step_gpu_2026-11-20.md).
constexpr double kStartShare = 0.2;

Tensor on_cpu(const Tensor& prices) { return prices.to(at::kCPU, at::kDouble).contiguous(); }

bool are_zero(const Tensor& prices) {
  const auto* const price = prices.const_data_ptr<double>();
  return std::all_of(price, price + prices.numel(), [](double value) { return value == 0; });
}

// A new tensor: others may have the old one.
Tensor between(const Tensor& from, const Tensor& to, double share) {
  TORCH_CHECK(from.sizes() == to.sizes(), "PriceAverage: want prices ", from.sizes(), ", got ",
              to.sizes());
  const Tensor result = at::empty(from.sizes(), from.options());
  const auto *const a = from.const_data_ptr<double>(), *const b = to.const_data_ptr<double>();
  for (int64_t e = 0; e < from.numel(); ++e)
    result.mutable_data_ptr<double>()[e] = a[e] + share * (b[e] - a[e]);
  return result;
}

const Tensor& copy_on(at::Device device, const Tensor& here, Tensor& there) {
  if (!there.defined() || there.device() != device) there = kernels::upload(here, device);
  return there;
}

}  // namespace

PriceAverage::PriceAverage(int64_t experts)
    : value_(at::zeros({experts}, at::kDouble)), start_(value_) {}

void PriceAverage::set(const Tensor& prices) {
  value_ = start_ = on_cpu(prices);
  there_ = start_there_ = Tensor();
  is_zero_ = are_zero(start_);
}

void PriceAverage::set_start(const Tensor& prices) {
  start_ = on_cpu(prices);
  start_there_ = Tensor();
  is_zero_ = are_zero(start_);
}

void PriceAverage::borrow(const Tensor& prices) {
  there_ = start_there_ = prices;
  if (!prices.defined() || !prices.is_cpu()) return;
  value_ = start_ = prices;
  is_zero_ = are_zero(start_);
}

void PriceAverage::move_towards(const Tensor& seen, double share) {
  const Tensor prices = on_cpu(seen);
  value_ = between(value_, prices, share);
  start_ = between(start_, prices, std::max(share, kStartShare));
  there_ = start_there_ = Tensor();
  is_zero_ = are_zero(start_);
}

const Tensor& PriceAverage::on(at::Device device) { return copy_on(device, value_, there_); }

const Tensor& PriceAverage::start_on(at::Device device) {
  return copy_on(device, start_, start_there_);
}

}  // namespace ballast::experts
