// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/config/config.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// Adam with decoupled weight decay over the table's flat groups, after clipping by the gradient
// norm.
class Optimizer {
 public:
  Optimizer(ParameterTable& table, const OptimizerConfig& config)
      : table_(table), config_(config) {}

  // Euclidean norm of the gradient of all parameters of these owners here, first to last: a scalar
  // on its device.
  at::Tensor gradient_norm(Owner first, Owner last) const;
  at::Tensor gradient_norm(Owner owner) const { return gradient_norm(owner, owner); }
  // Moves the weights. `update` counts the updates made, from 1; `norm` is what clipping goes by,
  // the same on all workers.
  void update(int64_t update, double learning_rate, double norm);
  void clear_gradients();

 private:
  ParameterTable& table_;
  OptimizerConfig config_;
};

}  // namespace ballast
