// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "ballast/kernels/gpu_graph.h"

namespace ballast {

// Time that work takes where it is done: on a GPU between events in its stream, so that measuring
// makes nobody wait, also within a graph: then of its last replay.
class DeviceTimer {
 public:
  void begin(at::Device device);
  void end();
  double seconds() const;  // of all spans; on a GPU waits for the last end()
  double take_seconds();   // the same, and forgets them

 private:
  struct Span {
    std::shared_ptr<GpuEvent> begin, end;
  };
  std::chrono::steady_clock::time_point begun_;
  std::vector<Span> spans_;
  bool on_gpu_ = false;
  double seconds_ = 0;
};

// What a layer observed of its routing in training.
struct RoutingStats {
  // Sums over the groups solved here, on their device: undefined before the first.
  at::Tensor price_sum;       // [E] float64: prices less their mean
  at::Tensor greedy_matches;  // [] int64: tokens whose balanced expert is also their best
  at::Tensor balance_sum;     // [] float64: balance losses of the groups, without their weight
  at::Tensor chosen;          // [] int64: choices of gates, one or two a token
  at::Tensor dropped;         // [] int64: those of them that found no place
  at::Tensor passed_by;       // [] int64: tokens that have no expert at all
  int64_t tokens = 0, groups = 0;
  std::vector<at::Tensor> statuses;  // of the assignments, as TensorAssignment has them
  DeviceTimer assigning;             // affinities and assignment; gates and places
};

// sum += value, which becomes the sum where there is none yet.
inline void add_to(at::Tensor& sum, const at::Tensor& value) {
  sum = sum.defined() ? sum.add_(value) : value;
}

}  // namespace ballast
