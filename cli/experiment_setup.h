// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/record/experiment_file.h"
#include "cli/experiment_run.h"
#include "cli/knob_options.h"

namespace ballast::cli {

// What `ballast experiment` was asked for.
struct ExperimentRequest {
  std::string name;
  ConfigOptions config;
  std::vector<std::string> data;  // empty: what the config names
  std::vector<int64_t> experts;
  std::vector<std::string> systems;
  std::string budget = "10m";
  std::filesystem::path out;  // empty: a folder under experiments/ named after the request
  double max_epochs = 4;
  int64_t sublayers = 0, workers = 1, seeds = 1, at_once = 1;
  int64_t rates = 0;  // 0: 3, or with optimizer.learning_rate 1
};

struct ExperimentSetup {
  record::Experiment experiment;  // nothing of it is done
  ExperimentPlace place;
};

enum class Preparing {
  kNothing,  // what is not there is not made
  kData,     // the built-in corpus is put into the experiment's folder, where it is trained on
};

// --out, or "experiments/dense-10m", with the data's name behind it.
std::filesystem::path experiment_folder(const ExperimentRequest& request);

// Decides the shared model by the device, the config file and the knobs; opens the data; describes
// the systems. UserError says what does not fit.
ExperimentSetup set_up(const ExperimentRequest& request, Preparing preparing);

}  // namespace ballast::cli
