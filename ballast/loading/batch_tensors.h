// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/batches/batch.h"

namespace ballast::loading {

struct BatchTensors {
  at::Tensor inputs;   // [B, S] int64
  at::Tensor targets;  // [B * S] int64, negative where ignored
};

// On the CPU the tensors are views of the batch's own memory, which must outlive them.
BatchTensors to_device(const batches::Batch& batch, at::Device device);
// The same into tensors on a GPU that have its shape.
void to_device(const batches::Batch& batch, const BatchTensors& there);

}  // namespace ballast::loading
