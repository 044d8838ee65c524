// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/batch_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "ballast/kernels/upload.h"

namespace ballast::loading {
namespace {

using at::Tensor;

// Views of the batch's memory.
BatchTensors here(const batches::Batch& batch) {
  const auto tensor = [](const std::vector<int64_t>& values, at::IntArrayRef shape) {
    return at::from_blob(const_cast<int64_t*>(values.data()), shape, at::kLong);
  };
  return {tensor(batch.inputs, {batch.rows, batch.context}),
          tensor(batch.targets, {batch.rows * batch.context})};
}

}  // namespace

BatchTensors to_device(const batches::Batch& batch, at::Device device) {
  return device.is_cpu() ? here(batch) : parts_of(kernels::upload(for_gpu(batch), device));
}

Tensor for_gpu(const batches::Batch& batch) {
  const Tensor numbers = at::empty({2, batch.rows, batch.context},
                                   at::TensorOptions().dtype(at::kLong).pinned_memory(true));
  std::ranges::copy(batch.targets,
                    std::ranges::copy(batch.inputs, numbers.mutable_data_ptr<int64_t>()).out);
  return numbers;
}

BatchTensors parts_of(const Tensor& numbers) { return {numbers[0], numbers[1].view({-1})}; }

}  // namespace ballast::loading
