// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ballast/comm/world.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/studio/plan/plan.h"

namespace ballast::training {

// What training takes of a worker's memory, by the cost model (docs/plan.md). REQUIRES: as Trainer.
plan::MemoryParts predict_memory(const config::Config& config, const model::ComputePlace& place,
                                 int64_t workers);
// "2.1 GB (weights 0.3 GB, gradients ...)"
std::string memory_in_words(const plan::MemoryParts& memory);

// Bytes a worker can have; nothing: not known.
std::optional<double> memory_for(const model::ComputePlace& place,
                                 const comm::PlaceOnMachine& worker);
// To be called before anything is allocated. UserError: `there` bytes cannot hold weights,
// gradients and moments, or the prediction is more than 1.15 times that on a GPU, 1.5 times on a
// CPU. It names the numbers and what would help. Where a run may just fit there is a warning.
void check_memory(const config::Config& config, const model::ComputePlace& place, int64_t workers,
                  std::optional<double> there);

// What a worker takes of its memory, in bytes: what predict_memory predicts. On a CPU: resident,
// beyond what the process had when this was made. On a GPU: of tensors.
class RunMemory {
 public:
  explicit RunMemory(const model::ComputePlace& place);
  double now() const;
  double peak() const;  // since this was made; on a GPU since the process began

 private:
  model::ComputePlace place_;
  double before_ = 0;
};

}  // namespace ballast::training
