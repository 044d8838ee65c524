// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ballast/record/experiment_file.h"

namespace ballast::cli {

struct ExperimentPlace {
  std::filesystem::path folder;
  // Knobs of the command line that each run gets in place of what its length would give it.
  std::map<std::string, std::string> given;
  double epochs_of_step = 0;  // what a step takes of the data
  int64_t split_batches = 0;  // what its validation split has
};

struct ExperimentEnd {
  bool was_stopped = false;         // by a signal; the same command goes on
  std::vector<std::string> failed;  // ids of systems that could not be trained
};

// Makes every run that is left, one after another or several at once, each a child process, and
// keeps experiment.json up to date. Says on stderr what it does, and which child fails.
ExperimentEnd run_experiment(record::Experiment& experiment, const ExperimentPlace& place);

// The systems with the lowest validation loss, the best first, kSystemsWithSeeds at most.
std::vector<std::string> best_systems(const record::Experiment& experiment,
                                      const std::filesystem::path& folder);

}  // namespace ballast::cli
