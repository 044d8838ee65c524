// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ballast::kernels {

// An argument that an operation can do without.
using OptionalTensor = std::optional<at::Tensor>;

inline OptionalTensor if_defined(const at::Tensor& x) {
  return x.defined() ? OptionalTensor(x) : std::nullopt;
}
inline OptionalTensor contiguous_if_defined(const at::Tensor& x) {
  return x.defined() ? OptionalTensor(x.contiguous()) : std::nullopt;
}

// Its numbers; null where there is no tensor.
template <typename Scalar>
const Scalar* data_or_null(const OptionalTensor& x) {
  return x ? x->const_data_ptr<Scalar>() : nullptr;
}

}  // namespace ballast::kernels
