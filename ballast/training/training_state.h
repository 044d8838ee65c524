// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/config/config.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/training/step_guard.h"

namespace ballast {

// Where a run stands, beside its weights and moments.
struct TrainingState {
  explicit TrainingState(const TrainingConfig& config) : guard(config) {}

  int64_t step = 0;     // steps done, skipped ones included; also the next batch
  int64_t updates = 0;  // times the optimizer moved the weights
  int64_t tokens = 0;   // trained on
  double seconds = 0;   // spent training, over all starts
  StepGuard guard;
};

// Writes weights, moments and state as one checkpoint and deletes old ones. Returns its folder.
std::filesystem::path save_training(const std::filesystem::path& checkpoints, const Config& config,
                                    const ParameterTable& table, const TrainingState& state);
// The reverse; everything a run needs to go on as if it had never stopped.
void load_training(const Checkpoint& checkpoint, ParameterTable& table, TrainingState& state);

}  // namespace ballast
