// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::comm {

// Two tensors of one shape whose bits differ have different numbers (but for a chance of 2^-64 or
// so). The host's numbers are not a GPU's.
int64_t tensor_hash(const at::Tensor& x);

// The GPU's number, on any device: the tensor is read there, once, and one number comes back.
int64_t device_tensor_hash(const at::Tensor& x);

}  // namespace ballast::comm
