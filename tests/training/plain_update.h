// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ballast/kernels/gradient_scale.h"
#include "ballast/training/optimizer.h"

namespace ballast::test {

// An update on the CPU, clipped by the norm of all gradients but the experts'.
inline void update_weights(training::Optimizer& optimizer, const config::OptimizerConfig& config,
                           int64_t update, double learning_rate) {
  const at::Tensor sums = at::zeros({4}, at::kDouble);
  const at::Tensor norm =
      optimizer.gradient_norm(parameters::Owner::kShared, parameters::Owner::kRouter);
  sums[2] = norm;
  const at::Tensor no_limit = at::full({1}, std::numeric_limits<double>::infinity(), at::kDouble);
  optimizer.update(
      optimizer.numbers(update, learning_rate),
      kernels::gradient_scale(sums, no_limit, {.clip_norm = config.clip_norm}, norm.scalar_type())
          .scale);
}

}  // namespace ballast::test
