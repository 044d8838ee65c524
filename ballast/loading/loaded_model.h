// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/comm/world.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::loading {

// A trained model, ready to be evaluated or to write text.
struct LoadedModel {
  config::Config config;                    // as it was trained, but for training.model_parallel
  std::filesystem::path path;               // the checkpoint or exported file it came from
  uint64_t step = 0;                        // steps it was trained for
  std::vector<checkpoint::DataEntry> data;  // it was trained on; none: its checkpoint does not tell
  model::ComputePlace place;
  parameters::ParameterTable table;
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<tokenizer::Tokenizer>
      tokenizer;  // null where the run had none (foreign token files)
};

// Opens the checkpoint that a run directory, checkpoint or export stands for. Collective. Worker 0
// decides which one, since another may be finished while the others look. SharedError: there is
// none.
checkpoint::Checkpoint open_together(const std::filesystem::path& path,
                                     comm::Communicator& workers);

// The configuration that a run (of its newest checkpoint that can be opened), a checkpoint or an
// export was saved with. Weights are not read. UserError: there is none.
config::Config recorded_config(const std::filesystem::path& path);

enum class Weights {
  kLast,
  kAverage,  // of the run's steps; see optimizer.average
};
struct LoadRequest {
  std::filesystem::path path;
  config::DeviceChoice device = config::DeviceChoice::kAuto;
  config::Precision precision = config::Precision::kAuto;
  std::string tokenizer = {};  // empty: the run's
  int64_t model_parallel = 1;  // how many workers hold a model together; must divide all workers
  Weights weights = Weights::kLast;
};
// From a run directory (its newest valid checkpoint), a checkpoint, or an exported model. Each
// worker of the world, which must outlive the model, holds its part of it. Collective; calls
// World::compute_on(). SharedError (a UserError), on all workers: anything that does not fit.
std::unique_ptr<LoadedModel> load_model(const LoadRequest& request, comm::World& world);

// A folder written by `ballast export`; a checkpoint and a run have more in them.
inline constexpr const char* kExportedWeights = "model.safetensors";
bool is_export(const std::filesystem::path& folder);

// The tokenizer's folder that belongs to a run directory, checkpoint or export; empty if there is
// none.
std::filesystem::path tokenizer_folder_of(const std::filesystem::path& path);

}  // namespace ballast::loading
