// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace ballast::experts {

// Work recorded as a CUDA graph. Test programs do not link CUDA: its functions are found in the
// libraries that the plugin has brought, by their stable C names.
class CudaGraph {
 public:
  // `record` runs once and only records; what it allocates must already be in libtorch's cache.
  template <typename Record>
  explicit CudaGraph(Record record) {
    constexpr unsigned kNonBlocking = 1;
    call("cudaStreamCreateWithFlags", &stream_, kNonBlocking);
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    // A stream that libtorch did not make has its address as its id.
    const c10::Stream stream(c10::Stream::UNSAFE, guard.getDevice(),
                             reinterpret_cast<c10::StreamId>(stream_));
    const c10::Stream before = guard.exchangeStream(stream);
    record();  // fills the caches of this stream
    call("cudaStreamSynchronize", stream_);
    constexpr int kRelaxed = 2;
    call("cudaStreamBeginCapture", stream_, kRelaxed);
    record();
    call("cudaStreamEndCapture", stream_, &graph_);
    guard.exchangeStream(before);
    call("cudaGraphInstantiate", &executable_, graph_, 0ULL);
  }
  ~CudaGraph() {
    call("cudaGraphExecDestroy", executable_);
    call("cudaGraphDestroy", graph_);
    call("cudaStreamDestroy", stream_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay() {
    call("cudaGraphLaunch", executable_, stream_);
    call("cudaStreamSynchronize", stream_);
  }

 private:
  template <typename... Args>
  static void call(const char* name, Args... args) {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(RTLD_DEFAULT, name));
    ASSERT_NE(function, nullptr) << name;
    ASSERT_EQ(function(args...), 0) << name;
  }

  void* stream_ = nullptr;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace ballast::experts
