// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace ballast::assignment {

// UserError naming `what` where CUDA refuses something.
void check_launch(cudaError_t error, const char* what);

// Throws UserError. For files that nvcc compiles, which cannot include system/error.h: it does not
// take fmt's checks of format strings.
[[noreturn]] void refuse(const std::string& message);

}  // namespace ballast::assignment
