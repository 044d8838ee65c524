// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// ballast::activate and its gradient by libtorch's own operations, on any device: what is done
// where a device has no kernel for a case.
at::Tensor plain_activate(const at::Tensor& x, int64_t activation);
at::Tensor plain_activate_backward(const at::Tensor& dy, const at::Tensor& x, int64_t activation);

}  // namespace ballast::kernels
