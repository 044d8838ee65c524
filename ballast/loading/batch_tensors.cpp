// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/batch_tensors.h"

#include <ATen/ops/from_blob.h>

#include "ballast/kernels/upload.h"

namespace ballast::loading {
namespace {

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
  const BatchTensors read = here(batch);
  return {kernels::upload(read.inputs, device), kernels::upload(read.targets, device)};
}

void to_device(const batches::Batch& batch, const BatchTensors& there) {
  const BatchTensors read = here(batch);
  kernels::upload_into(there.inputs, read.inputs);
  kernels::upload_into(there.targets, read.targets);
}

}  // namespace ballast::loading
