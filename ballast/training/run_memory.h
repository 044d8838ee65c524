// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ballast/comm/world.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/plan/plan.h"

namespace ballast {

// What training takes of a worker's memory, by the cost model (docs/plan.md). REQUIRES: as Trainer.
MemoryParts predict_memory(const Config& config, const ComputePlace& place, int64_t workers);
// "2.1 GB (weights 0.3 GB, gradients ...)"
std::string memory_in_words(const MemoryParts& memory);

// Bytes a worker can have; nothing: not known.
std::optional<double> memory_for(const ComputePlace& place, const PlaceOnMachine& worker);
// Before anything is asked for. UserError names the numbers and what would do, where `there` bytes
// cannot hold weights, gradients and moments, or by far not all that is predicted (1.15 times as
// much on a GPU, 1.5 times on a CPU); where it may just fit there is a warning.
void check_memory(const Config& config, const ComputePlace& place, int64_t workers,
                  std::optional<double> there);

// The most memory in use: on a CPU resident since this was made, beyond what the process had then;
// on a GPU of tensors, since the process began.
class PeakMemory {
 public:
  explicit PeakMemory(const ComputePlace& place);
  double bytes() const;

 private:
  at::Device device_;
  double before_ = 0;
};

}  // namespace ballast
