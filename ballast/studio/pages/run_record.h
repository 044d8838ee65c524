// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/record/metrics_file.h"

namespace ballast::pages {

// A run read back from its folder. Nothing in it is locked or changed: a run that goes on can be
// read as well. Numbers that are not there are NaN.

struct RunStartRecord {
  int64_t step = 0;
  std::string time = {}, version = {}, command = {}, machine = {};
  int64_t workers = 0;  // 0: an older program did not tell
};

struct RunRecord {
  std::filesystem::path path;
  std::string config_text;
  std::optional<config::Config> config;  // none: it cannot be read, see notes
  std::vector<RunStartRecord> starts;
  std::vector<record::StepRecord> steps;             // by rising step
  std::vector<record::ValidationPoint> validations;  // by rising step
  std::optional<record::LastValidation> validation;
  bool has_validation_file = false;
  std::string sample;  // the last one
  int64_t sample_step = 0;
  std::vector<std::string> notes;  // what is missing or damaged, in words

  int64_t planned_steps() const { return config ? config->training.steps : 0; }
  // Came to the end of its schedule, as far as its config tells.
  bool is_finished() const;
  int64_t steps_done() const { return steps.empty() ? 0 : steps.back().step; }
  double tokens() const { return steps.empty() ? record::kUnknown : steps.back().tokens; }
  double seconds() const { return steps.empty() ? record::kUnknown : steps.back().seconds; }
};

// Throws UserError if `folder` is not the folder of a run. What is damaged in it is noted.
RunRecord read_run(const std::filesystem::path& folder);

// "2 x NVIDIA H200, AMD EPYC, 2 cores, 25 GB, Debian GNU/Linux 12": what run.json or
// experiment.json calls hardware.
std::string machine_in_words(const nlohmann::json& hardware);

}  // namespace ballast::pages
