// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::kernels {

// y[r, o] = x[r] . weight[o] + bias[o], on plain arrays. Each value is a sum in one order of
// operations: it does not depend, to the bit, on how many rows and outputs there are, on which of
// them it is, nor on where they lie in memory. That order is a dot product's in sixteen lanes, and
// weights are read as they are, so that few rows take no longer than reading the weights does.
template <typename Scalar>
struct RowProduct {
  int64_t rows, outputs, inner;
  const Scalar* x;  // [rows, inner], rows x_stride apart
  int64_t x_stride;
  const Scalar* weight;  // [outputs, inner], rows weight_stride apart
  int64_t weight_stride;
  const Scalar* bias = nullptr;  // [outputs], or none
  bool relu = false;
  Scalar* y;  // [rows, outputs], rows y_stride apart
  int64_t y_stride;
};

// On the calling thread.
void multiply_rows(const RowProduct<float>& product);
void multiply_rows(const RowProduct<double>& product);

}  // namespace ballast::kernels
