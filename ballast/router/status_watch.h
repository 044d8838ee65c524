// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

#include "ballast/router/assign.h"

namespace ballast {

// Reads status blocks without making the device wait: watch() a result, queue more work, and ask
// later. Waiting is then for the watched result alone, not for what was queued after it.
class StatusWatch {
 public:
  // Starts to bring the result's status to the host. Not within a CUDA graph's capture.
  // REQUIRES: the last result's status was taken.
  void watch(const TensorAssignment& result);

  // The status of the watched result, once; empty where none is watched.
  std::vector<AssignmentStatus> take();

 private:
  at::Tensor host_;
  std::optional<c10::Event> arrived_;
  bool watching_ = false;
};

}  // namespace ballast
