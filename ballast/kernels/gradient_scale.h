// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// By what the gradient is clipped.
struct ClipRule {
  double clip_norm = 0;   // 0: not at all
  bool over_all = false;  // by the norm of experts too
};

// What adam_ multiplies gradients by, decided where the numbers are, so that nobody waits.
struct GradientScale {
  at::Tensor scale;  // [] in `dtype`: at most 1; not finite: this step must not move the weights
  at::Tensor norm;   // [1] fp64: what the gradient is clipped by
};

// `sums` [4 or more] fp64: the loss (any multiple), the squared norm of parts that shards hold, the
// norm of what all hold, the squared norm of experts. Nothing is moved where one of them is not
// finite, or where the norm is above `limit` [1] fp64. Registered as ballast::gradient_scale.
GradientScale gradient_scale(const at::Tensor& sums, const at::Tensor& limit, const ClipRule& rule,
                             at::ScalarType dtype);

}  // namespace ballast::kernels
