// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ballast::kernels {

// An argument that an operation can do without.
inline std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

// Its numbers; null where there is no tensor.
template <typename Scalar>
const Scalar* data_or_null(const std::optional<at::Tensor>& x) {
  return x ? x->const_data_ptr<Scalar>() : nullptr;
}

}  // namespace ballast::kernels
