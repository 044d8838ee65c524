// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/adam.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/training/muon.h"

namespace ballast::training {

// Adam with decoupled weight decay over the table's flat groups, after clipping by the gradient
// norm; Muon for the matrices that the table has it for; then the average of weights, if the table
// keeps one. Where the table's state is divided among workers, each moves what it keeps state for.
class Optimizer {
 public:
  // REQUIRES: the table is allocated and outlives this, as do `shards`, the workers that hold a
  // model together; null: one does.
  Optimizer(const parameters::ParameterTable& table, const config::OptimizerConfig& config,
            comm::Communicator* shards = nullptr)
      : table_(table), config_(config), muon_(table, config, shards) {}

  // Euclidean norm of the gradient of all parameters of these owners here, first to last, but for
  // those whose state is divided: a scalar on its device.
  at::Tensor gradient_norm(parameters::Owner first, parameters::Owner last) const;
  at::Tensor gradient_norm(parameters::Owner owner) const { return gradient_norm(owner, owner); }
  // The same of those whose state is divided, and here: no other worker counts them. Undefined:
  // there are none.
  at::Tensor divided_gradient_norm() const;
  // What update() needs for the `update`-th update, counted from 1; on the host. [kNumbers] fp64
  static constexpr int64_t kNumbers = 4;
  at::Tensor numbers(int64_t update, double learning_rate) const;
  // Moves the weights and leaves gradients of zeros, but for those that the table forgets at the
  // next step's begin. `numbers` and `scale`, by which gradients are multiplied, are where the
  // weights are; a scale that is not finite moves nothing. Collective among the shards.
  void update(const at::Tensor& numbers, const at::Tensor& scale);

 private:
  at::Tensor norm_of(const std::vector<parameters::ParameterTable::Range>& ranges) const;
  kernels::AdamConstants constants(bool decays, double rate, bool clears) const;

  const parameters::ParameterTable& table_;
  config::OptimizerConfig config_;
  Muon muon_;
};

}  // namespace ballast::training
