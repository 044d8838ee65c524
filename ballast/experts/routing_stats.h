// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace ballast {

// Time that work takes where it is done: on a GPU between events in its stream, so that measuring
// makes nobody wait.
class DeviceTimer {
 public:
  void begin(at::Device device);
  void end();
  double take_seconds();  // since the last call; on a GPU waits for the last end()

 private:
  std::chrono::steady_clock::time_point begun_;
  std::vector<std::pair<c10::Event, c10::Event>> spans_;
  bool on_gpu_ = false;
  at::Device device_ = at::kCPU;
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
  // The largest (dual - primal) / max(|primal|, |dual|) seen; on a GPU it is known one call later.
  double relative_gap = 0;
  double assign_seconds = 0;  // affinities and assignment; gates and places
};

// sum += value, which becomes the sum where there is none yet.
inline void add_to(at::Tensor& sum, const at::Tensor& value) {
  sum = sum.defined() ? sum.add_(value) : value;
}

}  // namespace ballast
