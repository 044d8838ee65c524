// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ballast {

// "float32 [96, 32]", "bfloat16 [4] on cuda:0"
std::string tensor_text(const at::Tensor& x);

}  // namespace ballast
