// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// Rows that go to up to K places each, and come back from there. Place i of M holds source
// source_of_row[i] (negative: none). Source j stands at the places rows_of_source[j] (negative:
// nowhere). The two say the same: i is in rows_of_source[j], once, if and only if source_of_row[i]
// = j.
// source_of_row [M] and rows_of_source [N, K] int64. On a GPU the host never waits.

// y[i] = x[source_of_row[i]], zeros where that is negative.  x [N, D] -> [M, D]
// The gradient is dx[j] = sum over k of dy[rows_of_source[j][k]].
at::Tensor spread_rows(const at::Tensor& x, const at::Tensor& source_of_row,
                       const at::Tensor& rows_of_source);

// The same where each row goes to one place at most: row_of_source [N] is the inverse of
// source_of_row.
at::Tensor permute_rows(const at::Tensor& x, const at::Tensor& source_of_row,
                        const at::Tensor& row_of_source);

// h[j] + sum over k of weights[j][k] (y[rows_of_source[j][k]] - h[j]); places that are nowhere add
// nothing.  h [N, D], y [M, D], weights [N, K] fp32 (fp64 with rows in fp64) -> [N, D]
// Gradients to h, y and weights (zero for places that are nowhere). Sums are in the weights' type.
at::Tensor mix_rows(const at::Tensor& h, const at::Tensor& y, const at::Tensor& rows_of_source,
                    const at::Tensor& source_of_row, const at::Tensor& weights);

}  // namespace ballast::experts
