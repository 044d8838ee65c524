// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_batches.h"

#include <ATen/ops/empty_like.h>

#include <optional>
#include <utility>

#include "ballast/kernels/upload.h"

namespace ballast::training {

StepBatches::StepBatches(at::Device device, int64_t micro_steps)
    : device_(device),
      micro_steps_(static_cast<size_t>(micro_steps)),
      on_cpu_(micro_steps_),
      on_gpu_(micro_steps_),
      of_step_(micro_steps_) {}

void StepBatches::start(std::function<batches::Batch(uint64_t)> make, uint64_t count) {
  stop();
  source_ = std::make_unique<batches::Prefetcher>(std::move(make), count);
}

void StepBatches::stop() {
  source_.reset();
  prepared_.clear();
}

const std::vector<loading::BatchTensors>& StepBatches::next() {
  for (size_t micro = 0; micro < micro_steps_; ++micro) {
    if (device_.is_cpu()) {
      on_cpu_[micro] = source_->next();
      of_step_[micro] = loading::to_device(on_cpu_[micro], device_);
      continue;
    }
    if (prepared_.empty()) prepared_.push_back(loading::for_gpu(source_->next()));
    copy_to_gpu(micro, prepared_.front());
    prepared_.pop_front();
  }
  return of_step_;
}

void StepBatches::copy_to_gpu(size_t micro, const at::Tensor& numbers) {
  if (!on_gpu_[micro].defined()) {
    on_gpu_[micro] =
        at::empty_like(numbers, numbers.options().device(device_).pinned_memory(false));
    of_step_[micro] = loading::parts_of(on_gpu_[micro]);
  }
  kernels::upload_into(on_gpu_[micro], numbers);
}

void StepBatches::prepare() {
  while (!device_.is_cpu() && prepared_.size() < micro_steps_) {
    const std::optional<batches::Batch> batch = source_->next_if_ready();
    if (!batch) return;
    prepared_.push_back(loading::for_gpu(*batch));
  }
}

}  // namespace ballast::training
