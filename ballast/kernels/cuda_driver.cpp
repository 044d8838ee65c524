// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace ballast::kernels {
namespace {

// CUDA's driver interface, as cuda.h declares it; its C names and types have been stable for years.
constexpr int kSuccess = 0;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;

template <typename... Args>
int call(void* library, const char* name, Args... args) {
  constexpr int kNoSuchFunction = -1;
  auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  return function != nullptr ? function(args...) : kNoSuchFunction;
}

CudaDevice describe(void* library, int device) {
  CudaDevice description;
  std::array<char, 256> name{};
  if (call(library, "cuDeviceGetName", name.data(), static_cast<int>(name.size()), device) ==
      kSuccess) {
    description.name = name.data();
  }
  size_t bytes = 0;
  if (call(library, "cuDeviceTotalMem_v2", &bytes, device) == kSuccess) {
    description.memory_bytes = bytes;
  }
  int major = 0;
  int minor = 0;
  call(library, "cuDeviceGetAttribute", &major, kComputeCapabilityMajor, device);
  call(library, "cuDeviceGetAttribute", &minor, kComputeCapabilityMinor, device);
  description.compute_capability = std::to_string(major) + "." + std::to_string(minor);
  return description;
}

}  // namespace

CudaDriver query_cuda_driver() {
  CudaDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* message = dlerror();
    driver.reason = message != nullptr ? message : "libcuda.so.1 cannot be loaded";
    return driver;
  }
  int version = 0;
  if (call(library, "cuDriverGetVersion", &version) == kSuccess) {
    driver.version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  const int started = call(library, "cuInit", 0U);
  int count = 0;
  if (started != kSuccess) {
    driver.reason = "the driver does not start (cuInit returns " + std::to_string(started) + ")";
  } else if (call(library, "cuDeviceGetCount", &count) != kSuccess || count == 0) {
    driver.reason = "the driver sees no GPU";
  }
  for (int device = 0; device < count; ++device) {
    driver.devices.push_back(describe(library, device));
  }
  return driver;  // the library stays loaded: CUDA does not survive being unloaded
}

}  // namespace ballast::kernels
