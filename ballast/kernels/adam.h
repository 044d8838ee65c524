// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Flat buffers [N] of one group of parameters.
struct AdamBuffers {
  at::Tensor working;        // what the model computes with; may be `master` itself
  at::Tensor master;         // fp32 or fp64
  at::Tensor gradient;       // dtype of working
  at::Tensor first_moment;   // dtype of master
  at::Tensor second_moment;  // dtype of master
};

struct AdamConstants {
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double weight_decay = 0;  // decoupled: master -= learning_rate * weight_decay * master
  double rate = 1;          // factor of the learning rate
  bool clear = false;       // leaves a gradient of zeros
};

// What changes with each step, as adam_ wants it: [3] fp64 on the host, the learning rate and the
// corrections 1 - beta1^step and 1 - beta2^step. `step` counts from 1.
at::Tensor adam_numbers(const AdamConstants& constants, double learning_rate, int64_t step);

// One pass over the buffers: moments, master, working copy, and the gradient where it is cleared.
// `numbers` [3] fp64 and `gradient_scale`, a scalar in the master's dtype, are on the buffers'
// device. The gradient is first multiplied by gradient_scale; where that is not finite nothing is
// changed, but the gradient still cleared. Registered as ballast::adam_.
void adam_(const AdamBuffers& buffers, const AdamConstants& constants, const at::Tensor& numbers,
           const at::Tensor& gradient_scale);

}  // namespace ballast::kernels
