// SPDX-License-Identifier: Apache-2.0
#include "ballast/router/status_watch.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>

namespace ballast {

void StatusWatch::watch(const TensorAssignment& result) {
  if (watching_) throw std::logic_error("StatusWatch: the last result's status was not taken");
  const at::Tensor& status = result.status;
  if (!status.is_cuda()) {
    host_ = status;
  } else {
    const c10::impl::VirtualGuardImpl gpu(status.device().type());
    if (!host_.defined() || host_.sizes() != status.sizes() || !arrived_) {
      // Pinned: a copy to other memory waits for the device.
      host_ = at::empty(status.sizes(), at::TensorOptions().dtype(at::kByte).pinned_memory(true));
      arrived_.emplace(status.device().type());
    }
    host_.copy_(status, /*non_blocking=*/true);
    arrived_->record(gpu.getStream(status.device()));
  }
  watching_ = true;
}

std::vector<AssignmentStatus> StatusWatch::take() {
  if (!watching_) return {};
  watching_ = false;
  if (arrived_) arrived_->synchronize();
  return status_blocks(host_);
}

}  // namespace ballast
