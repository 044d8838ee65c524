// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_inputs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ballast/kernels/upload.h"

namespace ballast::step {

using at::Tensor;

namespace {

// What was made for a place, as it lies there.
Tensor fitting(const Tensor& made, const Tensor& there) {
  TORCH_CHECK(made.scalar_type() == there.scalar_type() && made.sizes() == there.sizes(),
              "StepInputs: an input of another size or type than before");
  return made.contiguous();
}

}  // namespace

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
  std::vector<Tensor> made;
  for (const Chunk& chunk : chunks_) {
    made.push_back(
        at::empty({chunk.used}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
  }
  for (const Slot& slot : slots_) {
    const Tensor input = fitting(slot.make(step), slot.there);
    std::memcpy(made[slot.chunk].mutable_data_ptr<uint8_t>() + slot.first, input.const_data_ptr(),
                input.nbytes());
  }
  for (size_t i = 0; i < chunks_.size(); ++i)
    kernels::upload_into(chunks_[i].there.narrow(0, 0, chunks_[i].used), made[i]);
}

StepInputs::Slot StepInputs::make_slot(const Tensor& like) {
  constexpr int64_t kChunkBytes = 1 << 16, kAligned = 64;
  const auto bytes = static_cast<int64_t>(like.nbytes());
  if (chunks_.empty() || chunks_.back().used + bytes > chunks_.back().there.size(0)) {
    chunks_.push_back({at::empty({std::max(bytes, kChunkBytes)},
                                 at::TensorOptions().dtype(at::kByte).device(device_))});
  }
  Chunk& chunk = chunks_.back();
  const int64_t first = chunk.used;
  chunk.used = std::min(first + (bytes + kAligned - 1) / kAligned * kAligned, chunk.there.size(0));
  return {chunks_.size() - 1,
          first,
          chunk.there.narrow(0, first, bytes).view(like.scalar_type()).view(like.sizes()),
          {}};
}

Tensor StepInputs::take(Make make) {
  if (device_.is_cpu()) return make(step_);
  const size_t index = next_++;
  if (recording_) {
    TORCH_CHECK(index < slots_.size(), "StepInputs: a recorded step takes more than one before");
    slots_[index].make = std::move(make);
    return slots_[index].there;
  }
  const Tensor made = make(step_);
  if (index == slots_.size()) slots_.push_back(make_slot(made));
  kernels::upload_into(slots_[index].there, fitting(made, slots_[index].there));
  slots_[index].make = std::move(make);
  return slots_[index].there;
}

Tensor take_input(const InputOf& of, StepInputs::Make make) {
  if (of.inputs != nullptr) return of.inputs->take(std::move(make));
  return kernels::upload(make(of.step), of.device);
}

}  // namespace ballast::step
