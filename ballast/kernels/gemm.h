// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The matrix products of a linear layer, each by the fastest library for its shape and device.
// On the CPU in fp32 oneDNN runs the two products that have the weight on the right (measured 1.1x
// MKL at our shapes), MKL the weight gradient.

enum class Activation { kNone, kRelu };

// act(x W^T + b).  x [T, I], weight [O, I], bias [O] or undefined -> [T, O]
at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation = Activation::kNone);
// y W.  y [T, O], weight [O, I] -> [T, I]
at::Tensor multiply_weight(const at::Tensor& y, const at::Tensor& weight);
// sum += y^T x.  sum [O, I], y [T, O], x [T, I]
void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x);
// sum += the rows of y.  sum [O], y [T, O]
void add_rows(const at::Tensor& sum, const at::Tensor& y);
// Both for a linear layer x -> y with the gradient dy; a sum may be undefined: not wanted.
void add_weight_gradients(const at::Tensor& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x);

}  // namespace ballast
