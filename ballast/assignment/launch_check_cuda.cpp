// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/launch_check.h"
#include "ballast/system/error.h"

namespace ballast::assignment {

void check_launch(cudaError_t error, const char* what) {
  if (error != cudaSuccess) refuse(std::string(what) + ": CUDA says: " + cudaGetErrorString(error));
}

void refuse(const std::string& message) { throw UserError(message); }

}  // namespace ballast::assignment
