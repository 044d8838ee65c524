// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// The matrix products of a linear layer, each by the fastest library for its shape and device. All
// of them also take stacks of E products, with a dimension E before the others: x [E, T, I], weight
// [E, O, I], bias [E, O]. Rows may be dense rows of a larger tensor, and lie apart.
// On the CPU in fp32 oneDNN runs the two products that have the weight on the right (measured 1.1x
// MKL at our shapes), MKL the weight gradient. On the GPU in bf16 cublasLt also does what surrounds
// a product, as it reads and writes. The first call with a shape measures which of its algorithms
// is best: large ones for most of a second.

// act(x W^T + b), where act is kNone or kRelu.  x [T, I], weight [O, I], bias [O] or undefined ->
// [T, O]
at::Tensor multiply_transposed(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation = Activation::kNone);

// y W.  y [T, O], weight [O, I] -> [T, I]
at::Tensor multiply_weight(const at::Tensor& y, const at::Tensor& weight);
// The same, into `product`.
void multiply_weight_out(const at::Tensor& product, const at::Tensor& y, const at::Tensor& weight);
// y W where `active`, relu's result, is positive, else 0: the gradient by relu's argument. Its rows
// are added to bias_sum [I], unless that is undefined.  active [T, I]
at::Tensor multiply_weight_masked(const at::Tensor& y, const at::Tensor& weight,
                                  const at::Tensor& active, const at::Tensor& bias_sum);

// sum += y^T x.  sum [O, I], y [T, O], x [T, I]
void add_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x);
// sum = y^T x.
void write_outer_products(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x);
// The first where the sum is begun, else the second.
void sum_outer_products(const GradientSum& sum, const at::Tensor& y, const at::Tensor& x);
// Adds the gradients of a linear layer x -> y, given dy, to those of its weight and bias. A sum
// that is undefined is not wanted.
void add_weight_gradients(const GradientSum& weight_sum, const at::Tensor& bias_sum,
                          const at::Tensor& dy, const at::Tensor& x);

}  // namespace ballast::kernels
