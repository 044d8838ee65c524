// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/batch_tensors.h"

#include <ATen/ops/from_blob.h>

namespace ballast::loading {

BatchTensors to_device(const batches::Batch& batch, at::Device device) {
  const auto tensor = [&](const std::vector<int64_t>& values, at::IntArrayRef shape) {
    const at::Tensor here = at::from_blob(const_cast<int64_t*>(values.data()), shape, at::kLong);
    if (!device.is_cuda()) return here.to(device);
    // Pinned: a copy from other memory waits for the device.
    return here.pin_memory().to(device, at::kLong, /*non_blocking=*/true);
  };
  return {tensor(batch.inputs, {batch.rows, batch.context}),
          tensor(batch.targets, {batch.rows * batch.context})};
}

}  // namespace ballast::loading
