// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_inputs.h"

#include <utility>

#include "ballast/kernels/upload.h"

namespace ballast::step {

using at::Tensor;

void StepInputs::begin(uint64_t step) {
  step_ = step;
  next_ = 0;
  recording_ = false;
}

void StepInputs::begin_recording() {
  next_ = 0;
  recording_ = true;
}

void StepInputs::fill(uint64_t step) {
  step_ = step;
  for (Slot& slot : slots_) slot.there.copy_(kernels::upload(slot.make(step), device_));
}

Tensor StepInputs::take(Make make) {
  if (device_.is_cpu()) return make(step_);
  const size_t index = next_++;
  if (recording_) {
    TORCH_CHECK(index < slots_.size(), "StepInputs: a recorded step takes more than one before");
    slots_[index].make = std::move(make);
    return slots_[index].there;
  }
  const Tensor made = kernels::upload(make(step_), device_);
  if (index == slots_.size()) {
    slots_.push_back({made, std::move(make)});
  } else {
    slots_[index].there.copy_(made);
    slots_[index].make = std::move(make);
  }
  return slots_[index].there;
}

Tensor take_input(const InputOf& of, StepInputs::Make make) {
  if (of.inputs != nullptr) return of.inputs->take(std::move(make));
  return kernels::upload(make(of.step), of.device);
}

}  // namespace ballast::step
