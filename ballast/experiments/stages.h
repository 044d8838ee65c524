// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ballast/experiments/run_length.h"
#include "ballast/report/experiment_file.h"

namespace ballast {

// One run that an experiment makes.
struct Stage {
  RunPurpose purpose = RunPurpose::kMeasure;
  std::string system;  // its id
  double learning_rate = 0;
  int64_t steps = 0, seed = 1;  // of measuring: more steps than the time for it allows
  std::string run;              // its folder, as seen from the experiment's
  double seconds = 0;           // expected
};

// How long a system's steps are measured.
double seconds_to_measure(const Experiment& experiment);

// The runs to make next, all of one purpose: first every system is measured, then each has its
// sweep, then all are trained, and at last those of `best` with further seeds. Systems of `failed`
// are passed over. Nothing: the experiment is done. REQUIRES: fix_steps was called after measuring.
std::vector<Stage> next_stages(const Experiment& experiment, const std::set<std::string>& failed,
                               const std::vector<std::string>& best);

// What a stage has brought, put into the record of its system.
void record_step_time(SystemRecord& system, double step_seconds,
                      const std::map<std::string, double>& step_parts);
void record_swept(SystemRecord& system, const SweptRate& rate, const Experiment& experiment);
void record_trained(SystemRecord& system, const TrainedRun& run);
// Where no sweep is asked for, the middle rate is every measured system's.
void skip_sweeps(Experiment& experiment);

// Stages of the whole experiment, and of those the ones that are done.
struct StageCount {
  int64_t done = 0, all = 0;
};
StageCount count_stages(const Experiment& experiment);
// Seconds that the stages to come will take, as far as one can know, one after another.
double seconds_left(const Experiment& experiment);

}  // namespace ballast
