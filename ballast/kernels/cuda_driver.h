// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ballast::kernels {

struct CudaDevice {
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
  std::string compute_capability;  // "9.0"
};

struct CudaDriver {
  std::string version;  // the newest CUDA it can run, "13.0"; empty where there is no driver
  std::string reason;   // why no device can be used; empty if one can
  std::vector<CudaDevice> devices;
};

// Asks NVIDIA's driver (libcuda.so.1, loaded here) which GPUs this process may use; needs neither
// the plugin nor libtorch, and makes no CUDA context. Never throws.
CudaDriver query_cuda_driver();

}  // namespace ballast::kernels
