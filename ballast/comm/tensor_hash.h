// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast {

// A number that differs where bits of two tensors of one shape differ (but for a chance of 2^-64
// or so). On the host and on a GPU it is another one.
int64_t tensor_hash(const at::Tensor& x);

// That of GPUs, on any device: all is read there, once, and one number comes back.
int64_t device_tensor_hash(const at::Tensor& x);

}  // namespace ballast
