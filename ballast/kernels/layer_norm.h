// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast {

// (x - mean) / sqrt(variance + 1e-5) * weight + bias, over the last dimension.  x [T, D] -> [T, D]
at::Tensor layer_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

}  // namespace ballast
