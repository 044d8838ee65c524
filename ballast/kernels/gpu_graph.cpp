// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gpu_graph.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace ballast::kernels {
namespace {

template <typename Function>
Function* exported(const char* name) {
  // The plugin was loaded for all to see by whoever put tensors on a GPU.
  auto* function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(function != nullptr, name, ": the CUDA plugin is not loaded");
  return function;
}

}  // namespace

std::unique_ptr<GpuGraph> make_gpu_graph(const GpuGraph* shares_memory_with) {
  std::unique_ptr<GpuGraph> graph;
  exported<decltype(ballast_make_gpu_graph)>("ballast_make_gpu_graph")(shares_memory_with, graph);
  return graph;
}

std::unique_ptr<GpuEvent> make_gpu_event() {
  std::unique_ptr<GpuEvent> event;
  exported<decltype(ballast_make_gpu_event)>("ballast_make_gpu_event")(event);
  return event;
}

GpuMemory gpu_memory(at::Device device) {
  GpuMemory memory;
  exported<decltype(ballast_gpu_memory)>("ballast_gpu_memory")(device, memory);
  return memory;
}

void release_cached_gpu_memory() {
  exported<decltype(ballast_release_cached_gpu_memory)>("ballast_release_cached_gpu_memory")();
}

}  // namespace ballast::kernels
