// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Which numbers of x [T, D] are left out: a function of the key, the place, and the number's index
// (first_row + row) D + column.
struct LeftOut {
  at::Tensor key;  // [1] int64, on the device of x
  int64_t place = 0;
  int64_t first_row = 0;
  double part = 0;  // of all numbers, from 0 to less than 1
};

// Zeros where left out, else x / (1 - part). The gradient is left out likewise.
at::Tensor dropout(const at::Tensor& x, const LeftOut& left_out);

}  // namespace ballast::kernels
