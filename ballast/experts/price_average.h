// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// The average of a solver's prices in training, less their mean, which priced routing subtracts
// from the scores; and a quicker one, which the solver starts from: what it lags behind, each
// assignment has to catch up. Each BASE layer has one.
class PriceAverage {
 public:
  explicit PriceAverage(int64_t experts);

  // [E] float64 on the CPU; zeros at first.
  const at::Tensor& value() const { return value_; }
  const at::Tensor& start() const { return start_; }
  void set(const at::Tensor& prices);  // both, [E]
  void set_start(const at::Tensor& prices);
  // The same without a copy and without waiting for a GPU: [E] float64, on the device that on()
  // will be asked for; undefined: they are given back. value() is theirs on the CPU alone.
  void borrow(const at::Tensor& prices);
  // value += share (seen - value), and at least a fifth of the way for the start.
  void move_towards(const at::Tensor& seen, double share);
  bool is_zero() const { return is_zero_; }  // the start
  // Copies on a device, or what is borrowed there. Of a recorded step the start is an input
  // (step/step_inputs.h) instead.
  const at::Tensor& on(at::Device device);
  const at::Tensor& start_on(at::Device device);

 private:
  at::Tensor value_, start_;
  at::Tensor there_, start_there_;  // undefined until they are asked for
  bool is_zero_ = true;
};

}  // namespace ballast::experts
