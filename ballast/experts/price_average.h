// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// The average of a solver's prices in training, less their mean. Priced routing subtracts it from
// the scores, and the solver starts from it. Each BASE layer has one.
class PriceAverage {
 public:
  explicit PriceAverage(int64_t experts);

  const at::Tensor& value() const { return value_; }  // [E] float64 on the CPU; zeros at first
  void set(const at::Tensor& prices);                 // [E]
  // The same without a copy and without waiting for a GPU: [E] float64, on the device that on()
  // will be asked for; undefined: they are given back. value() is theirs on the CPU alone.
  void borrow(const at::Tensor& prices);
  void move_towards(const at::Tensor& seen, double share);  // value += share (seen - value)
  bool is_zero() const { return is_zero_; }
  // A copy on a device. Of a recorded step it is an input (step/step_inputs.h) instead.
  const at::Tensor& on(at::Device device);

 private:
  at::Tensor value_, there_;  // the latter undefined until it is asked for
  bool is_zero_ = true;
};

}  // namespace ballast::experts
