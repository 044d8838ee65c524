// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Passes over the rows of a gradient that add them to the gradient of a bias. All of them also take
// stacks: sum [E, O], y [E, T, O]. On a GPU in bf16, where rows are dense and in whole units of 16
// bytes, each is one pass, which sums in fp32 and in a fixed order, and rounds once. Elsewhere they
// are libtorch's operations. None takes part in autograd: y must not require a gradient.

// sum += the rows of y.  sum [O], y [T, O]
void add_rows(const at::Tensor& sum, const at::Tensor& y);

// Turns the gradient by relu's result into that by relu's argument, in place: 0 where `active`, the
// result, is not positive. Its rows are added to `sum`, unless that is undefined.
// dactive [T, O], active [T, O], sum [O]
void take_back_relu(const at::Tensor& dactive, const at::Tensor& active, const at::Tensor& sum);

}  // namespace ballast::kernels
