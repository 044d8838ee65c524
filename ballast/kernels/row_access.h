// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

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

// Whether rows of all these tensors are whole accesses of `bytes`.
inline bool have_whole_accesses(std::initializer_list<const at::Tensor*> tensors,
                                int64_t bytes = kAccessBytes) {
  for (const at::Tensor* t : tensors) {
    if (reinterpret_cast<uintptr_t>(t->const_data_ptr()) % bytes != 0 ||
        t->size(-1) * t->element_size() % bytes != 0)
      return false;
  }
  return true;
}

// Calls work with the number of elements in one access, at compile time: 16 bytes, or one element
// where rows do not allow that.
template <typename Scalar, typename Work>
void with_pack_size(bool whole, const Work& work) {
  constexpr int kWhole = kAccessBytes / sizeof(Scalar);
  whole ? work(std::integral_constant<int, kWhole>()) : work(std::integral_constant<int, 1>());
}

}  // namespace ballast::kernels
