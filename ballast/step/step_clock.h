// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "ballast/kernels/gpu_graph.h"
#include "ballast/step/step_watch.h"

namespace ballast::step {

struct PartSeconds {
  StepPart part = StepPart::kOther;
  double seconds = 0;
};

// How long the parts of a step take where they are computed: on a GPU between events in its stream,
// so that measuring makes nobody wait before the end.
class StepClock : public StepWatch {
 public:
  using Seconds = std::function<double()>;  // since some moment

  explicit StepClock(at::Device device);
  // For work on the CPU, timed by another clock.
  explicit StepClock(Seconds now);

  // A step begins, in the part kOther.
  void start();
  // It ends. REQUIRES: it was started.
  void stop();
  // The parts it was in, kOther left out, in their order. Their sum is at most the time from
  // start() to stop(). Waits for the device. For a step that was recorded as a graph: the times of
  // its last replay.
  std::vector<PartSeconds> read() const;

 private:
  void switched(StepPart part) override;
  void mark(StepPart begins);
  double between(size_t mark) const;  // that one and the next

  at::Device device_ = at::kCPU;
  Seconds now_;
  bool is_running_ = false;
  // Since start(): when each part began, and the end. Events are kept from step to step.
  std::vector<StepPart> parts_;
  std::vector<double> times_;
  std::vector<std::unique_ptr<kernels::GpuEvent>> events_;
};

}  // namespace ballast::step
