// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The average of a solver's prices in training, less their mean: what priced routing subtracts from
// the scores, and where the solver starts. One of each BASE layer.
class PriceAverage {
 public:
  explicit PriceAverage(int64_t experts);

  const at::Tensor& value() const { return value_; }  // [E] float64 on the CPU; zeros at first
  void set(const at::Tensor& prices);                 // [E]
  void move_towards(const at::Tensor& seen, double share);  // value += share (seen - value)
  bool is_zero() const { return is_zero_; }
  // The same on a device, always in one place there: a recorded step finds it.
  const at::Tensor& on(at::Device device);

 private:
  at::Tensor value_, there_;
  bool is_zero_ = true;
};

}  // namespace ballast
