// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace ballast::kernels {

// Work on a GPU that is recorded once and then runs again as a single launch, on the same memory.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;

  // Records what `work` queues on the current stream, which is not the default one; nothing of it
  // runs. What `work` leaves alive keeps its place. Throws what `work` throws, and whatever cannot
  // be recorded, such as waiting for the device; the graph is then as before.
  virtual void record(const std::function<void()>& work) = 0;
  // Queues the recorded work on the current stream. REQUIRES: it was recorded.
  virtual void replay() = 0;
};

// A moment in the current stream of a GPU. Within a graph's recording it is part of the graph, and
// of every replay.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;

  virtual void record() = 0;
  virtual void synchronize() const = 0;
  // REQUIRES: both were recorded and have happened.
  virtual double seconds_until(const GpuEvent& later) const = 0;
};

struct GpuMemory {
  int64_t peak_bytes = 0;  // the most that tensors had, since the process began
};

// Of the CUDA plugin. REQUIRES: it is loaded; graphs and events are of the current GPU.
// Graphs that share memory are never under way at the same time.
std::unique_ptr<GpuGraph> make_gpu_graph(const GpuGraph* shares_memory_with);
std::unique_ptr<GpuEvent> make_gpu_event();
GpuMemory gpu_memory(at::Device device);
void release_cached_gpu_memory();  // what no tensor has, back to the driver

}  // namespace ballast::kernels

// What the plugin exports for these.
extern "C" {
void ballast_make_gpu_graph(const ballast::kernels::GpuGraph* shares_memory_with,
                            std::unique_ptr<ballast::kernels::GpuGraph>& graph);
void ballast_make_gpu_event(std::unique_ptr<ballast::kernels::GpuEvent>& event);
void ballast_gpu_memory(at::Device device, ballast::kernels::GpuMemory& memory);
void ballast_release_cached_gpu_memory();
}
