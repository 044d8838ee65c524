// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/config/config.h"
#include "ballast/training/upcycle.h"
#include "ballast/training/validation.h"

namespace ballast::training {

enum class Resume {
  kNever,  // the run directory must be new
  kAuto,   // go on from its newest valid checkpoint; start anew where there is no run
};

struct TrainRequest {
  // The configuration: a file (may be empty) and overrides, on top of the defaults; when a run is
  // resumed without a file, on top of its own stored configuration.
  std::string config_file, scale = "paper";
  std::vector<std::pair<std::string, std::string>> overrides;
  std::filesystem::path run;  // the run directory
  Resume resume = Resume::kNever;
  // A run, checkpoint, export or folder of Hugging Face's that a new run starts from; empty: none.
  // The config is then on top of the shape of that model.
  std::filesystem::path initial_weights;
  std::optional<Upcycling> upcycling =
      {};  // its feed-forwards become experts; its seed is the run's
  std::vector<std::string> command_line;
  bool allow_other_data = false;  // go on, though data or tokenizer are not those of the checkpoint
  int64_t profiled_steps = 0;     // that worker 0 writes a trace of (docs/profiling.md)
};

// The configuration a request asks for, checked. model.vocabulary may still be 0.
config::Config resolve_config(const TrainRequest& request);

struct TrainSummary {
  std::filesystem::path run, checkpoint;  // checkpoint: the newest
  int64_t step = 0, tokens = 0, skipped = 0, parameters = 0;
  int workers = 1;
  double seconds = 0;
  std::optional<double> loss;         // of the last step; nothing: none was made
  double predicted_memory = 0;        // bytes of a worker
  std::optional<double> peak_memory;  // of this worker; nothing: no step was made
  bool finished = false;              // false: stopped early by a signal or max_time
  std::optional<Validation> validation;
  std::vector<std::string> layers;  // of experts, by name: "BASE layer 6"
  std::optional<double> floor_per_token, floor_per_byte;
  std::string sample;
};

// Trains to the end, or until a signal or max_time asks it to stop; saves either way. Every worker
// of the world calls it with the same request and gets the same summary but for its memory. Throws
// UserError before anything is written if the request does not fit the run directory, the data or
// the workers.
TrainSummary train(const TrainRequest& request, comm::World& world);

}  // namespace ballast::training
