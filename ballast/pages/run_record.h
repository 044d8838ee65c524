// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/pages/last_validation.h"

namespace ballast {

// A run read back from its folder. Nothing in it is locked or changed: a run that goes on can be
// read as well. Numbers that are not there are NaN.

struct LayerStep {
  int64_t layer = 0;
  double assign_seconds = kUnknown, exchange_seconds = kUnknown;
  double greedy_share = kUnknown;     // BASE
  double relative_gap = kUnknown;     // of the exact solver: certified
  double shortfall_bound = kUnknown;  // of others: what may be missing, by their own prices
  double dropped_share = kUnknown, passed_share = kUnknown, balance_loss = kUnknown;  // gates
};

struct StepRecord {
  int64_t step = 0;
  double loss = kUnknown, learning_rate = kUnknown;
  double tokens = kUnknown, seconds = kUnknown;  // since the run began
  double tokens_per_second = kUnknown;           // of this step
  std::vector<LayerStep> layers = {};
  std::map<std::string, double> parts = {};  // seconds of this step by part
};

struct ValidationPoint {
  int64_t step = 0;
  double tokens = kUnknown, seconds = kUnknown;  // trained until then
  double loss = kUnknown;
};

struct RunStartRecord {
  int64_t step = 0;
  std::string time = {}, version = {}, command = {}, machine = {};
};

struct RunRecord {
  std::filesystem::path path;
  std::string config_text;
  std::optional<Config> config;  // none: it cannot be read, see notes
  std::vector<RunStartRecord> starts;
  std::vector<StepRecord> steps;             // by rising step
  std::vector<ValidationPoint> validations;  // by rising step
  std::optional<LastValidation> validation;
  bool has_validation_file = false;
  std::string sample;  // the last one
  int64_t sample_step = 0;
  std::vector<std::string> notes;  // what is missing or damaged, in words

  int64_t planned_steps() const { return config ? config->training.steps : 0; }
  // Came to the end of its schedule, as far as its config tells.
  bool is_finished() const;
  int64_t steps_done() const { return steps.empty() ? 0 : steps.back().step; }
  double tokens() const { return steps.empty() ? kUnknown : steps.back().tokens; }
  double seconds() const { return steps.empty() ? kUnknown : steps.back().seconds; }
};

// Throws UserError if `folder` is not the folder of a run. What is damaged in it is noted.
RunRecord read_run(const std::filesystem::path& folder);

// "2 x NVIDIA H200, AMD EPYC, 2 cores, 25 GB, Debian GNU/Linux 12": what run.json or
// experiment.json calls hardware.
std::string machine_in_words(const nlohmann::json& hardware);

}  // namespace ballast
