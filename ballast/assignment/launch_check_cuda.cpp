// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/launch_check.h"
#include "ballast/system/error.h"

namespace ballast::assignment {

void check_launch(cudaError_t error, const char* what) {
  if (error != cudaSuccess) refuse(std::string(what) + ": CUDA says: " + cudaGetErrorString(error));
}

CudaDevice current_cuda_device() {
  CudaDevice found{};
  check_launch(cudaGetDevice(&found.number), "the current device");
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    check_launch(cudaDeviceGetAttribute(&value, attribute, found.number), "the current device");
  };
  ask(found.major, cudaDevAttrComputeCapabilityMajor);
  ask(found.multiprocessors, cudaDevAttrMultiProcessorCount);
  ask(found.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return found;
}

void refuse(const std::string& message) { throw UserError(message); }

}  // namespace ballast::assignment
