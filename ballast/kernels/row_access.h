// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::kernels {

// What kernels that go over rows 16 bytes at a time ask of a tensor.

constexpr int64_t kAccessBytes = 16;

inline bool is_on_boundary(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kAccessBytes == 0;
}
// The types there are kernels for.
inline bool is_of_row_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat ||
         x.scalar_type() == at::kDouble;
}

}  // namespace ballast::kernels
