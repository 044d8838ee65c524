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

// Inputs, then targets, [2, B, S] int64, in host memory that a GPU reads by itself.
at::Tensor for_gpu(const batches::Batch& batch);
// Views of these numbers, wherever they are.
BatchTensors parts_of(const at::Tensor& numbers);

}  // namespace ballast::loading
