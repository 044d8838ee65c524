// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ballast/record/experiment_file.h"
#include "ballast/studio/experiments/run_length.h"

namespace ballast::experiments {

// One run that an experiment makes.
struct Stage {
  RunPurpose purpose = RunPurpose::kMeasure;
  std::string system;  // its id
  double learning_rate = 0;
  int64_t steps = 0, seed = 1;  // of measuring: the most, where time allows
  std::string run;              // its folder, as seen from the experiment's
  double seconds = 0;           // expected
};

// How long a system's steps are measured, at most, and how long its run may take, with its start.
double seconds_to_measure(const record::Experiment& experiment);
double seconds_of_measuring(const record::Experiment& experiment);
// The best systems, so many, that are trained with further seeds.
constexpr int64_t kSystemsWithSeeds = 3;

// The runs to make next, all of one purpose: first every system is measured, then each has its
// sweep, then all are trained, and at last those of `best` with further seeds. Systems of `failed`
// are passed over. Nothing: the experiment is done. REQUIRES: fix_steps was called after measuring.
std::vector<Stage> next_stages(const record::Experiment& experiment,
                               const std::set<std::string>& failed,
                               const std::vector<std::string>& best);

// What a stage has brought, put into the record of its system.
struct MeasuredStep {
  double seconds = 0;
  std::optional<double> early_seconds = {};
  std::map<std::string, double> parts = {};
};
void record_step_time(record::SystemRecord& system, const MeasuredStep& step);
void record_swept(record::SystemRecord& system, const record::SweptRate& rate,
                  const record::Experiment& experiment);
void record_trained(record::SystemRecord& system, const record::TrainedRun& run);
// Where no sweep is asked for, the middle rate is every measured system's.
void skip_sweeps(record::Experiment& experiment);
// What was measured and swept in another experiment with the same systems, of another budget; said
// in rates_from as `name`. Systems that did not come so far there have their own.
void take_rates(record::Experiment& experiment, const record::Experiment& from,
                const std::string& name);

// Stages of the whole experiment, and of those the ones that are done.
struct StageCount {
  int64_t done = 0, all = 0;
};
StageCount count_stages(const record::Experiment& experiment);
// Seconds that the stages to come will take, as far as one can know, one after another.
double seconds_left(const record::Experiment& experiment);

}  // namespace ballast::experiments
