// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// What a feed-forward does between its two matrices. kSwiglu takes pairs: of x [T, 2 F] the first F
// columns are the gate, and it gives gate sigmoid(gate) times the others.
enum class Activation : int64_t { kNone, kRelu, kGelu, kGeluTanh, kRelu2, kSwiglu };

// Columns it takes for each that it gives.
constexpr int64_t columns_taken(Activation activation) {
  return activation == Activation::kSwiglu ? 2 : 1;
}

// x [..., F] (kSwiglu: [..., 2 F]) -> [..., F]. One pass over x; computed in fp32 where x is of
// half precision. Neither takes part in autograd: x must not require a gradient.
at::Tensor activate(const at::Tensor& x, Activation activation);
// The gradient by x from dy [..., F].
at::Tensor activate_backward(const at::Tensor& dy, const at::Tensor& x, Activation activation);

}  // namespace ballast::kernels
