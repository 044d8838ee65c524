// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The experts' passes over rows in bf16, where each row has the weights of its expert; one kernel
// each. Rows are contiguous; rows, weights and the distances between experts are multiples of 16
// bytes. Where experts end is read on the device.

// N rows sorted by expert, which end at ends [E] int32, and their R places in the tensors of matrix
// products: block 0: the same; else each expert's are the first of its block of that many.
struct RowPlaces {
  at::Tensor ends;
  int64_t rows = 0, block = 0;                                                 // N
  int64_t places() const { return block == 0 ? rows : ends.size(0) * block; }  // R
};

void set_ends(const at::Tensor& ends, const std::vector<int64_t>& rows_of_expert);

struct NormedRows {
  at::Tensor normed;         // [R, D], zeros where nobody is
  at::Tensor mean, inverse;  // [N] fp32
};
// LayerNorm of x [N, D] with each expert's weight and bias [E, D].
NormedRows normalize_by_expert(const RowPlaces& at, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias);
// y = relu(y + bias_e).  y [R, F], bias [E, F]
void add_bias_relu(const RowPlaces& at, const at::Tensor& y, const at::Tensor& bias);
// x + y + bias_e.  x [N, D], y [R, D], bias [E, D] -> [N, D]
at::Tensor add_residual_bias(const RowPlaces& at, const at::Tensor& x, const at::Tensor& y,
                             const at::Tensor& bias);
// Rows at their places, zeros where nobody is.  [N, D] -> [R, D]
at::Tensor to_places(const RowPlaces& at, const at::Tensor& x);

// sum_e += terms_e for the experts that have rows.  [E, ...] both, terms contiguous
void add_to_experts(const at::Tensor& sum, const at::Tensor& terms, const at::Tensor& ends);

// dactive = 0 where a unit was not active; sum_e += its columns.  [R, F], sum [E, F] or undefined
void mask_inactive_by_expert(const RowPlaces& at, const at::Tensor& active,
                             const at::Tensor& dactive, const at::Tensor& sum);

struct NormGradient {
  const at::Tensor &dnormed, &dy;        // [R, D], [N, D]
  const at::Tensor &x, &mean, &inverse;  // [N, D], [N], [N]
  const at::Tensor& weight;              // [E, D]
};
// dy + the gradient of LayerNorm by x.  -> [N, D]
at::Tensor normalize_by_expert_backward(const RowPlaces& at, const NormGradient& in);

// [E, D] each, or undefined.
struct NormSums {
  const at::Tensor &weight, &bias, &dy;
};
// Adds up the columns for the norm's weight and bias, and those of dy, in a fixed order.
void add_norm_columns(const RowPlaces& at, const NormGradient& in, const NormSums& sums);

}  // namespace ballast
