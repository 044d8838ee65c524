// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// Flat buffers [N] of one group of parameters.
struct AdamBuffers {
  at::Tensor working;        // what the model computes with; may be `master` itself
  at::Tensor master;         // fp32 or fp64
  at::Tensor gradient;       // dtype of working
  at::Tensor first_moment;   // dtype of master
  at::Tensor second_moment;  // dtype of master
};

struct AdamSettings {
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  double weight_decay = 0;  // decoupled: master -= learning_rate * weight_decay * master
  int64_t step = 1;         // counts from 1, for the bias correction
};

// One pass over the buffers: moments, master and working copy. The gradient is first multiplied by
// gradient_scale, a scalar tensor on the same device; where that is not finite nothing is changed.
// Registered as ballast::adam_.
void adam_(const AdamBuffers& buffers, const AdamSettings& settings,
           const at::Tensor& gradient_scale);

}  // namespace ballast
