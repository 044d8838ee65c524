// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <vector>

#include "ballast/kernels/gpu_graph.h"

namespace ballast::step {

// Time that work takes where it is done. On a GPU it is taken between events in the stream, so that
// nobody waits for it. Within a graph it is the time of the last replay.
class DeviceTimer {
 public:
  void begin(at::Device device);
  void end();
  double seconds() const;  // of all spans; on a GPU waits for the last end()
  double take_seconds();   // the same, and forgets them

 private:
  struct Span {
    std::shared_ptr<kernels::GpuEvent> begin, end;
  };
  std::chrono::steady_clock::time_point begun_;
  std::vector<Span> spans_;
  bool on_gpu_ = false;
  double seconds_ = 0;
};

}  // namespace ballast::step
