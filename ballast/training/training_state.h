// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/comm/worker_grid.h"
#include "ballast/config/config.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/training/step_guard.h"

namespace ballast::training {

// Where a run stands, beside its weights and moments.
struct TrainingState {
  explicit TrainingState(const config::TrainingConfig& config) : guard(config) {}

  int64_t step = 0;     // steps done, skipped ones included; also the next batch
  int64_t updates = 0;  // times the optimizer moved the weights
  int64_t tokens = 0;   // trained on
  double seconds = 0;   // spent training, over all starts
  StepGuard guard;
};

// What a checkpoint is made of.
struct TrainingParts {
  const config::Config& config;
  const model::LanguageModel& model;
  const parameters::ParameterTable& table;
  const TrainingState& state;
  std::vector<checkpoint::DataEntry> data = {};  // that it is trained on
};

// Writes weights, moments, their average, prices and state as one checkpoint and deletes old ones.
// Returns its folder. Collective. Replica 0 writes all tensors but the experts', whole, and all
// workers what they divide; each worker writes its own experts; all at once. Worker 0 commits when
// all have. SharedError: names what could not be written, and by whom.
std::filesystem::path save_training(const std::filesystem::path& checkpoints,
                                    const TrainingParts& parts, const comm::WorkerGrid& grid);
// The reverse, on any grid of workers that check_workers is content with; everything a run needs to
// go on as if it had never stopped.
void load_training(const checkpoint::Checkpoint& checkpoint, const model::LanguageModel& model,
                   parameters::ParameterTable& table, TrainingState& state);

// What --init-from did with parts that a model may lack: layers of experts, their routers and
// sublayers, feed-forwards that experts stand for. By name: "layer.6", "layer.6 gate", "block.5
// feed-forward".
struct InitializedFrom {
  std::vector<std::string> fresh;     // not in the checkpoint: as in a new run
  std::vector<std::string> left_out;  // in the checkpoint alone
};
// Takes the weights of a checkpoint, whatever run it is of. Parts named above that it lacks stay
// fresh. So do experts between blocks where its own stand for feed-forwards, and the reverse.
// UserError: it lacks anything else, or has it in another shape.
InitializedFrom initialize_from(const checkpoint::Checkpoint& checkpoint,
                                const config::ExpertsConfig& experts,
                                parameters::ParameterTable& table);

}  // namespace ballast::training
