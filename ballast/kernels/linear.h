// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// x W^T + b.  x [T, I], weight [O, I], bias [O] or nothing -> [T, O]
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias);
// x + b.  x [T, O], bias [O] -> [T, O]
at::Tensor add_bias(const at::Tensor& x, const Parameter& bias);

// relu(x U^T + u) V^T + v.  x [T, D], up [F, D], up_bias [F], down [D, F], down_bias [D] or nothing
// -> [T, D]
struct FeedForwardWeights {
  const Parameter& up;
  const Parameter& up_bias;
  const Parameter& down;
  const Parameter& down_bias;
};
at::Tensor feed_forward(const at::Tensor& x, const FeedForwardWeights& weights);

}  // namespace ballast::kernels
