// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ballast/record/metrics_file.h"

namespace ballast::experiments {

// What experiments need of a run, read from its metrics.jsonl; a torn last line is passed over.
struct RunOutcome {
  struct Routed {
    double loss = 0;
    double busiest = 0;        // most tokens of an expert, in fair shares; 0: there are no experts
    std::string routing = {};  // greedy or priced, where both were validated; else empty
  };

  int64_t step = 0;  // the last one
  double seconds = 0;
  int64_t tokens = 0;
  bool was_skipped = false;          // the last step did not move the weights
  std::vector<double> step_seconds;  // of each step
  // Of steps that told them: seconds by part.
  std::vector<std::map<std::string, double>> step_parts;
  std::vector<record::ValidationPoint> validations;  // whose losses are finite, in their order
  std::optional<Routed> greedy, priced;  // of the last validation; a dense model's is `greedy`

  // The better of the two.
  std::optional<Routed> best() const;
  // A step's time, as a median: of the last third, once it runs as it will, and of the first
  // third without its first steps. None: too few.
  std::optional<double> settled_step_seconds() const;
  std::optional<double> early_step_seconds() const;
  // Seconds of its parts: means over the last third of the steps that told them. Empty: none did.
  std::map<std::string, double> settled_step_parts() const;
};

// A folder without metrics.jsonl gives an outcome of 0 steps.
RunOutcome read_outcome(const std::filesystem::path& run);

}  // namespace ballast::experiments
