// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ballast::comm {

// "float32 [96, 32]"
std::string shape_text(const at::Tensor& x);

// The same with the device, if it is not the host: "float32 [96, 32]", "bfloat16 [4] on cuda:0"
std::string tensor_text(const at::Tensor& x);

}  // namespace ballast::comm
