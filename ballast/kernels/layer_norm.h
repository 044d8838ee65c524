// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

inline constexpr double kNormEpsilon = 1e-5;  // of every norm

// (x - mean) / sqrt(variance + kNormEpsilon) * weight + bias, over the last dimension.  x [T, D] ->
// [T, D]
at::Tensor layer_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

// A residual stream after a change, and its norm: one pass over the rows forward, one backward.
struct NormedSum {
  at::Tensor sum;     // x + change, rounded to their type
  at::Tensor normed;  // layer_norm(sum, weight, bias)
};
// x, change [T, D] -> [T, D] each. The gradients by x and by change are one tensor.
NormedSum add_layer_norm(const at::Tensor& x, const at::Tensor& change, const Parameter& weight,
                         const Parameter& bias);

}  // namespace ballast::kernels
