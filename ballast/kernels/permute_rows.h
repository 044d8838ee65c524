// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// y[i] = x[source_of_row[i]], zeros where that is negative. Each row of x stands in y at most once,
// at row_of_source[j] (negative: nowhere): the two are each other's inverse.
// x [N, D], source_of_row [M] and row_of_source [N] int64 -> [M, D]
// The gradient is dx[j] = dy[row_of_source[j]], zeros where negative.
at::Tensor permute_rows(const at::Tensor& x, const at::Tensor& source_of_row,
                        const at::Tensor& row_of_source);

}  // namespace ballast
