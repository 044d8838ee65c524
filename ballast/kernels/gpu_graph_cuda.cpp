// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include "ballast/kernels/gpu_graph.h"
#include "ballast/kernels/graph_fills_cuda.h"

namespace ballast::kernels {
namespace {

class CudaGraph : public GpuGraph {
 public:
  explicit CudaGraph(const CudaGraph* other)
      : pool_(other != nullptr ? other->pool_ : at::cuda::graph_pool_handle()) {}

  void record(const std::function<void()>& work) override {
    auto graph = std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true);
    // Other threads, such as NCCL's watchdog, go on as they please meanwhile.
    graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon(*graph);
      throw;
    }
    try {
      graph->capture_end();
    } catch (...) {  // `work` hid what broke the recording
      tell_allocators();
      throw;
    }
    make_kernels_of_small_fills(graph->raw_cuda_graph());
    graph->instantiate();
    graph_ = std::move(graph);
  }

  void replay() override {
    TORCH_CHECK(graph_ != nullptr, "GpuGraph: replayed before it was recorded");
    graph_->replay();
  }

 private:
  // Throws away what was recorded, so that the stream can be used again. Ending a recording that
  // broke fails; then libtorch's allocators have not been told.
  void abandon(at::cuda::CUDAGraph& graph) const noexcept {
    try {
      graph.capture_end();
    } catch (...) {
      tell_allocators();
    }
  }

  void tell_allocators() const noexcept {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(at::cuda::current_device(), pool_);
    } catch (...) {  // they were told after all
    }
    cudaGetLastError();
  }

  at::cuda::MempoolId_t pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

class CudaEvent : public GpuEvent {
 public:
  CudaEvent() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record() override {
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    // External: an event of the graph's replays, not of its recording.
    const bool recording = status == cudaStreamCaptureStatusActive;
    C10_CUDA_CHECK(cudaEventRecordWithFlags(
        event_, stream, recording ? cudaEventRecordExternal : cudaEventRecordDefault));
  }

  void synchronize() const override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }

  double seconds_until(const GpuEvent& later) const override {
    float milliseconds = 0;
    C10_CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, event_, dynamic_cast<const CudaEvent&>(later).event_));
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace
}  // namespace ballast::kernels

void ballast_make_gpu_graph(const ballast::kernels::GpuGraph* shares_memory_with,
                            std::unique_ptr<ballast::kernels::GpuGraph>& graph) {
  graph = std::make_unique<ballast::kernels::CudaGraph>(
      dynamic_cast<const ballast::kernels::CudaGraph*>(shares_memory_with));
}

void ballast_make_gpu_event(std::unique_ptr<ballast::kernels::GpuEvent>& event) {
  event = std::make_unique<ballast::kernels::CudaEvent>();
}

void ballast_gpu_memory(at::Device device, ballast::kernels::GpuMemory& memory) {
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  const auto all = static_cast<size_t>(StatType::AGGREGATE);
  memory.peak_bytes = stats.allocated_bytes.at(all).peak;
}

void ballast_release_cached_gpu_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }
