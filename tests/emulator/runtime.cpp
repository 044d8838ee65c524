// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's functions that our code calls, for the emulated GPU.
#include <cstring>
#include <map>

#include "tests/emulator/cuda_on_cpu.h"

namespace ballast::emulator {
namespace {

std::map<const void*, Starter>& starters() {
  static std::map<const void*, Starter> known;
  return known;
}

cudaError_t start(const void* kernel, const Launch& launch, void** arguments) {
  const auto found = starters().find(kernel);
  if (found == starters().end()) return cudaErrorInvalidDeviceFunction;
  if (launch.shared_bytes > setting().shared_bytes) return cudaErrorInvalidValue;
  const auto blocks = static_cast<int>(launch.cooperative ? launch.grid.x : launch.cluster);
  if (blocks > setting().processors) return cudaErrorCooperativeLaunchTooLarge;
  run(launch, [&] { found->second(kernel, arguments); });
  return cudaSuccess;
}

}  // namespace

void remember(const void* kernel, Starter starter) { starters()[kernel] = starter; }

}  // namespace ballast::emulator

using ballast::emulator::setting;

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorCooperativeLaunchTooLarge ? "too many blocks at once" : "refused";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDevice(int* device) {
  *device = ballast::emulator::device_number();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = setting().processors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(setting().shared_bytes);
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*,
                                           const cudaLaunchConfig_t* config) {
  const auto blocks = static_cast<int>(config->attrs->val.clusterDim.x);
  *clusters = blocks > setting().cluster_blocks ? 0 : setting().processors / blocks;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* memory, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t) {
  for (size_t i = 0; i < height; ++i)
    std::memset(static_cast<char*>(memory) + i * pitch, value, width);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  ballast::emulator::Launch launch{
      .grid = config->gridDim, .block = config->blockDim, .shared_bytes = config->dynamicSmemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) launch.cooperative = true;
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      launch.cluster = attribute.val.clusterDim.x;
  }
  return ballast::emulator::start(kernel, launch, arguments);
}

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t) {
  return ballast::emulator::start(
      kernel, {.grid = grid, .block = block, .shared_bytes = shared_bytes, .cooperative = true},
      arguments);
}

}  // extern "C"
