// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/stages.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/studio/experiments/learning_rates.h"

namespace ballast::experiments {
namespace {

using record::Experiment;
using record::Progression;
using record::SystemRecord;

constexpr double kSecondsToStart = 4;      // of a run, before and after its steps
constexpr double kWithValidations = 1.15;  // a run's time by that of its steps

double seconds_of(const SystemRecord& system, int64_t steps) {
  return kSecondsToStart +
         kWithValidations * static_cast<double>(steps) * system.step_seconds.value_or(0);
}

double budget_of(const Experiment& experiment) {
  return experiment.training_seconds.value_or(experiment.budget_seconds);
}

Stage measure_stage(const SystemRecord& system, const Experiment& experiment) {
  return {RunPurpose::kMeasure,
          system.id,
          experiment.middle_rate,
          kStepsToMeasure,
          1,
          "measured/" + system.id,
          seconds_of_measuring(experiment)};
}

Stage training_stage(const SystemRecord& system, int64_t seed) {
  return {RunPurpose::kTrain,
          system.id,
          system.learning_rate.value(),
          system.steps.value(),
          seed,
          fmt::format("runs/{}-s{}", system.id, seed),
          seconds_of(system, *system.steps)};
}

void add_sweep(std::vector<Stage>& stages, const SystemRecord& system,
               const Experiment& experiment) {
  const int64_t steps = sweep_steps(system.steps.value());
  for (const double rate :
       rates_to_try(system.sweep, experiment.middle_rate, static_cast<size_t>(experiment.rates))) {
    stages.push_back({RunPurpose::kSweep, system.id, rate, steps, 1,
                      fmt::format("sweeps/{}/{:.3g}", system.id, rate), seconds_of(system, steps)});
  }
}

bool is_trained_with(const SystemRecord& system, int64_t seed) {
  return std::ranges::any_of(system.runs,
                             [&](const record::TrainedRun& run) { return run.seed == seed; });
}

}  // namespace

double seconds_to_measure(const Experiment& experiment) {
  return std::clamp(experiment.budget_seconds / 5, 0.5, 60.0);
}

double seconds_of_measuring(const Experiment& experiment) {
  return kSecondsToStart + seconds_to_measure(experiment);
}

std::vector<Stage> next_stages(const Experiment& experiment, const std::set<std::string>& failed,
                               const std::vector<std::string>& best) {
  std::vector<Stage> stages;
  for (const Progression before :
       {Progression::kPlanned, Progression::kMeasured, Progression::kSwept}) {
    for (const SystemRecord& system : experiment.systems) {
      if (system.status != before || failed.contains(system.id)) continue;
      if (before == Progression::kPlanned) stages.push_back(measure_stage(system, experiment));
      if (before == Progression::kMeasured) add_sweep(stages, system, experiment);
      if (before == Progression::kSwept) stages.push_back(training_stage(system, 1));
    }
    if (!stages.empty()) return stages;
  }
  for (int64_t seed = 2; seed <= experiment.seeds; ++seed) {
    for (const SystemRecord& system : experiment.systems) {
      if (std::ranges::count(best, system.id) > 0 && !failed.contains(system.id) &&
          !is_trained_with(system, seed))
        stages.push_back(training_stage(system, seed));
    }
  }
  return stages;
}

void record_step_time(SystemRecord& system, const MeasuredStep& step) {
  system.step_seconds = step.seconds;
  system.early_step_seconds = step.early_seconds;
  system.step_parts = step.parts;
  system.status = Progression::kMeasured;
}

void record_swept(SystemRecord& system, const record::SweptRate& rate,
                  const Experiment& experiment) {
  system.sweep.push_back(rate);
  const std::optional<double> best = best_rate(system.sweep);
  const bool is_done =
      rates_to_try(system.sweep, experiment.middle_rate, static_cast<size_t>(experiment.rates))
          .empty();
  if (!is_done || !best) return;
  system.learning_rate = best;
  system.status = Progression::kSwept;
}

void record_trained(SystemRecord& system, const record::TrainedRun& run) {
  system.runs.push_back(run);
  system.status = Progression::kTrained;
}

void skip_sweeps(Experiment& experiment) {
  if (experiment.rates > 1) return;
  for (SystemRecord& system : experiment.systems) {
    if (system.status != Progression::kMeasured || !system.steps) continue;
    system.learning_rate = experiment.middle_rate;
    system.status = Progression::kSwept;
  }
}

void take_rates(Experiment& experiment, const Experiment& from, const std::string& name) {
  experiment.rates_from = name;
  for (SystemRecord& system : experiment.systems) {
    const auto found = std::ranges::find(from.systems, system.id, &SystemRecord::id);
    if (found == from.systems.end() || !found->step_seconds || !found->learning_rate) continue;
    record_step_time(system, {*found->step_seconds, found->early_step_seconds, found->step_parts});
    system.sweep = found->sweep;
    system.learning_rate = found->learning_rate;
    system.status = Progression::kSwept;
  }
}

StageCount count_stages(const Experiment& experiment) {
  StageCount count;
  const int64_t rates = experiment.rates > 1 ? experiment.rates : 0;
  int64_t further = 0;
  for (const SystemRecord& system : experiment.systems) {
    const auto swept = static_cast<int64_t>(system.sweep.size());
    const bool is_swept = system.status >= Progression::kSwept;
    const auto trained = static_cast<int64_t>(system.runs.size());
    count.done += (system.step_seconds ? 1 : 0) + swept + trained;
    count.all += 2 + (is_swept ? swept : std::max(rates, swept));
    further += std::max<int64_t>(0, trained - 1);
  }
  const auto systems = static_cast<int64_t>(experiment.systems.size());
  count.all += std::max(further, (experiment.seeds - 1) * std::min(kSystemsWithSeeds, systems));
  return count;
}

double seconds_left(const Experiment& experiment) {
  double left = 0;
  const bool has_own_rates = experiment.rates_from.empty();
  const double training = kSecondsToStart + kWithValidations * budget_of(experiment);
  int64_t further = 0;
  for (const SystemRecord& system : experiment.systems) {
    if (!system.step_seconds && has_own_rates) left += seconds_of_measuring(experiment);
    if (system.status < Progression::kSwept && experiment.rates > 1 && has_own_rates) {
      const auto rates = experiment.rates - static_cast<int64_t>(system.sweep.size());
      const double one = system.steps ? seconds_of(system, sweep_steps(*system.steps))
                                      : kSecondsToStart + kSweepShare * budget_of(experiment);
      left += one * static_cast<double>(std::max<int64_t>(1, rates));
    }
    if (system.runs.empty()) left += training;
    further += std::max<int64_t>(0, static_cast<int64_t>(system.runs.size()) - 1);
  }
  const auto systems = static_cast<int64_t>(experiment.systems.size());
  const int64_t wanted = (experiment.seeds - 1) * std::min(kSystemsWithSeeds, systems);
  return left + training * static_cast<double>(std::max<int64_t>(0, wanted - further));
}

}  // namespace ballast::experiments
