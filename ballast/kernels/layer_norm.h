// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// LayerNorm takes the mean off and divides by the deviation; RMSNorm divides by the root of the
// mean square.
enum class NormKind : int64_t { kLayer, kRms };

struct NormForm {
  NormKind kind = NormKind::kLayer;
  double epsilon = 1e-5;  // added to the variance, or to the mean square

  bool takes_mean() const { return kind == NormKind::kLayer; }
};

// (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension; of RMSNorm
// x / sqrt(mean square + epsilon) * weight + bias. The bias may be undefined.
// x [T, D], weight, bias [D] -> [T, D]
at::Tensor layer_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias,
                      const NormForm& form = {});

// A residual stream after a change, and its norm: one pass over the rows forward, one backward.
struct NormedSum {
  at::Tensor sum;     // x + change, rounded to their type
  at::Tensor normed;  // layer_norm(sum, weight, bias, form)
};
// x, change [T, D] -> [T, D] each. The gradients by x and by change are one tensor. Its rows are
// added to the gradient of change_bias [D], which was added to all rows of `change`, unless that is
// undefined: they pass by here anyway.
NormedSum add_layer_norm(const at::Tensor& x, const at::Tensor& change, const Parameter& weight,
                         const Parameter& bias, const NormForm& form = {},
                         const Parameter& change_bias = no_parameter());

}  // namespace ballast::kernels
