// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ballast/batches/prefetcher.h"
#include "ballast/loading/batch_tensors.h"

namespace ballast::training {

// The batches of a run's steps, where the model is.
class StepBatches {
 public:
  StepBatches(at::Device device, int64_t micro_steps);

  // From now on the batches are those that make(i) gives for i = 0, 1, ... count - 1, on a thread
  // of its own; each step takes the next micro_steps of them.
  void start(std::function<batches::Batch(uint64_t)> make, uint64_t count);
  bool is_started() const { return source_ != nullptr; }
  void stop();

  // Those of the next step, in order; what was given before is no longer valid. On a GPU they are
  // always in the same places, and nothing waits for it. Throws as Prefetcher::next(), then and
  // ever after. REQUIRES: start().
  const std::vector<loading::BatchTensors>& next();
  // For a GPU: copies those of the step after it, as far as they are ready, into pinned memory, so
  // that the GPU need not wait for this between two steps. REQUIRES: start().
  void prepare();

 private:
  void copy_to_gpu(size_t micro, const at::Tensor& numbers);

  at::Device device_;
  size_t micro_steps_;
  std::unique_ptr<batches::Prefetcher> source_;
  std::vector<batches::Batch> on_cpu_;  // of the step
  std::vector<at::Tensor> on_gpu_;      // of the step, [2, B, S]
  std::deque<at::Tensor> prepared_;     // for a GPU, [2, B, S]
  std::vector<loading::BatchTensors> of_step_;
};

}  // namespace ballast::training
