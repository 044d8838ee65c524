// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The passes of spread_rows and mix_rows over contiguous rows on the CPU, in bf16, fp32 and fp64.

// y[i] = x[source[i]], zeros where that is negative.  x [N, D], source [M] -> [M, D]
at::Tensor gather_rows_cpu(const at::Tensor& x, const at::Tensor& source);
// y[j] = sum over k of x[rows[j][k]].  x [M, D], rows [N, K] -> [N, D]
at::Tensor sum_rows_cpu(const at::Tensor& x, const at::Tensor& rows);

struct MixInputs {
  const at::Tensor &h, &y;                           // [N, D], [M, D]
  const at::Tensor &rows_of_source, &source_of_row;  // [N, K], [M]
  const at::Tensor& weights;                         // [N, K]
};
at::Tensor mix_rows_cpu(const MixInputs& in);

struct MixGradients {
  at::Tensor dh, dy, dweights;
};
MixGradients mix_rows_backward_cpu(const MixInputs& in, const at::Tensor& dmixed);

}  // namespace ballast
