// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace ballast::assignment {

// UserError naming `what` where CUDA refuses something.
void check_launch(cudaError_t error, const char* what);

// The current device. UserError: there is none.
struct CudaDevice {
  int number, major;  // `major`: of its compute capability
  int multiprocessors;
  int shared_bytes;  // that a block can have
};
CudaDevice current_cuda_device();

// Throws UserError. For files that nvcc compiles, which cannot include system/error.h: it does not
// take fmt's checks of format strings.
[[noreturn]] void refuse(const std::string& message);

}  // namespace ballast::assignment
