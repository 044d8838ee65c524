// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/price_average.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "ballast/kernels/upload.h"

namespace ballast::experts {

using at::Tensor;

PriceAverage::PriceAverage(int64_t experts) : value_(at::zeros({experts}, at::kDouble)) {}

void PriceAverage::set(const Tensor& prices) {
  value_ = prices.to(at::kCPU, at::kDouble).contiguous();
  there_ = Tensor();
  is_zero_ = value_.count_nonzero().item<int64_t>() == 0;
}

void PriceAverage::borrow(const Tensor& prices) {
  there_ = prices;
  if (!prices.defined() || !prices.is_cpu()) return;
  value_ = prices;
  is_zero_ = value_.count_nonzero().item<int64_t>() == 0;
}

void PriceAverage::move_towards(const Tensor& seen, double share) {
  set(value_ + share * (seen - value_));
}

const Tensor& PriceAverage::on(at::Device device) {
  if (!there_.defined() || there_.device() != device) there_ = kernels::upload(value_, device);
  return there_;
}

}  // namespace ballast::experts
