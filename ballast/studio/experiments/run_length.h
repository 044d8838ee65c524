// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ballast/record/experiment_file.h"

namespace ballast::experiments {

// Steps of a run that takes so long, at least a few.
int64_t steps_within(double seconds, double step_seconds);

// Fixes the steps of all systems that are measured and have none yet. The first time, the seconds
// each may train are decided too: the budget, or less for all alike where one would see its data
// more than max_epochs times. `epochs_of_step`: what a step of the experiment's tokens_per_step
// takes of the data.
void fix_steps(record::Experiment& experiment, double epochs_of_step);

// A sweep tries each learning rate with this share of a run's steps, and the run's own warm-up:
// what a rate does early decides whether it diverges.
constexpr double kSweepShare = 0.2, kWarmupShare = 0.1;
// Of short runs more, 400 or all: fewer do not tell rates apart.
int64_t sweep_steps(int64_t steps);
// The warm-up's share of a run, 200 steps at least, and never more than half of `steps`, which a
// sweep has fewer of than the run that it is for.
int64_t warmup_steps(int64_t steps, int64_t full_steps);
// Steps that are measured, where time allows: the last third comes after the warm-up.
constexpr int64_t kStepsToMeasure = 400;

// What a run is for.
enum class RunPurpose { kMeasure, kSweep, kTrain };

// Validations along the way, and the batches of each; 0: the whole split.
struct Validations {
  int64_t times = 20, batches = 0;
};
// The same for all systems, on the whole split where that takes no longer than the shortest run's
// steps; less often where it takes a good part of them. `split_batches`: the whole split's.
Validations validations_of(const record::Experiment& experiment, int64_t split_batches);

struct RunLength {
  RunPurpose purpose = RunPurpose::kTrain;
  int64_t steps = 0, seed = 1;
  int64_t full_steps = 0;  // of the run that a sweep is for; 0: these are
  double learning_rate = 0, step_seconds = 0;
  Validations validations = {};
};
// The knobs that depend on how long a run is: warm-up, validations (of a sweep one at its end, of
// training the last on the whole split), step lines, checkpoints (every few minutes).
std::map<std::string, std::string> knobs_of(const RunLength& length);

}  // namespace ballast::experiments
