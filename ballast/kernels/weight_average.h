// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// average += share * (weights - average), over flat buffers [N] of one dtype, fp32 or fp64. `share`
// [1] fp64 and `gradient_scale`, a scalar in the weights' dtype, are on their device; where the
// latter is not finite, so that nothing moved the weights, nothing changes. Registered as
// ballast::average_weights_.
void average_weights_(const at::Tensor& average, const at::Tensor& weights, const at::Tensor& share,
                      const at::Tensor& gradient_scale);

}  // namespace ballast::kernels
