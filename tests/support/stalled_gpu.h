// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ballast::test {

// Lets the GPU stand still: whoever waits for it does so until its patience ends, and stands()
// tells. Warm up first: memory is allocated and kernels are loaded at first use, which may wait.
class StalledGpu {
 public:
  explicit StalledGpu(std::chrono::milliseconds patience = std::chrono::seconds(5))
      : patience_(patience) {
    call("cudaDeviceSynchronize");
    call("cudaLaunchHostFunc", current_stream(), &StalledGpu::stand, static_cast<void*>(this));
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience_, [&] { return begun_; })) ADD_FAILURE() << "it goes on";
  }
  ~StalledGpu() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    call("cudaDeviceSynchronize");
  }
  StalledGpu(const StalledGpu&) = delete;
  StalledGpu& operator=(const StalledGpu&) = delete;

  // Nobody has waited for the GPU until now.
  bool stands() {
    const std::lock_guard lock(mutex_);
    return !gave_up_;
  }

 private:
  static void* current_stream() {
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    return gpus.getStream(gpus.getDevice()).native_handle();
  }

  // Called in the stream's turn, on a thread of the driver.
  static void stand(void* gpu) {
    auto& self = *static_cast<StalledGpu*>(gpu);
    std::unique_lock lock(self.mutex_);
    self.begun_ = true;
    self.changed_.notify_all();
    self.gave_up_ = !self.changed_.wait_for(lock, self.patience_, [&] { return self.released_; });
  }

  // Test programs do not link CUDA: the plugin has brought it.
  template <typename... Args>
  static void call(const char* name, Args... args) {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(RTLD_DEFAULT, name));
    if (function == nullptr || function(args...) != 0) ADD_FAILURE() << name;
  }

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false, released_ = false, gave_up_ = false;
};

}  // namespace ballast::test
