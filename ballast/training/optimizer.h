// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/config/config.h"
#include "ballast/kernels/adam.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::training {

// Adam with decoupled weight decay over the table's flat groups, after clipping by the gradient
// norm.
class Optimizer {
 public:
  Optimizer(parameters::ParameterTable& table, const config::OptimizerConfig& config)
      : table_(table), config_(config) {}

  // Euclidean norm of the gradient of all parameters of these owners here, first to last: a scalar
  // on its device.
  at::Tensor gradient_norm(parameters::Owner first, parameters::Owner last) const;
  at::Tensor gradient_norm(parameters::Owner owner) const { return gradient_norm(owner, owner); }
  // What update() needs for the `update`-th update, counted from 1; on the host.
  at::Tensor numbers(int64_t update, double learning_rate) const;
  // Moves the weights and leaves gradients of zeros. `numbers` and `scale`, by which gradients are
  // multiplied, are where the weights are; a scale that is not finite moves nothing.
  void update(const at::Tensor& numbers, const at::Tensor& scale);

 private:
  kernels::AdamConstants constants(bool decays, double rate) const;

  parameters::ParameterTable& table_;
  config::OptimizerConfig config_;
};

}  // namespace ballast::training
