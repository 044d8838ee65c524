// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// A host tensor on `device`; the host does not wait for a GPU, which reads pinned memory by itself.
inline at::Tensor upload(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  const at::Tensor pinned = host.is_pinned() ? host : host.pin_memory();
  return pinned.to(device, pinned.scalar_type(), /*non_blocking=*/true);
}

// The same into `there`, of the same shape and type.
inline void upload_into(const at::Tensor& there, const at::Tensor& host) {
  there.copy_(there.is_cpu() || host.is_pinned() ? host : host.pin_memory(), /*non_blocking=*/true);
}

}  // namespace ballast::kernels
