// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/run_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ballast::experiments {
namespace {

constexpr int64_t kFewestSteps = 20, kFewestSweepSteps = 400, kFewestWarmupSteps = 200;
constexpr int64_t kStepLines = 100;
constexpr int64_t kMostValidations = 20, kFewestValidations = 8;
constexpr double kSecondsBetweenCheckpoints = 180;
// Of the steps of a run, for its validations: as far as there can be fewer, and at most.
constexpr double kValidationShare = 0.3, kMostValidationShare = 1;
constexpr double kForwardShare = 1.0 / 3;  // a step costs three times its forward pass

int64_t share_of(double share, int64_t steps) {
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(steps)));
}

}  // namespace

int64_t steps_within(double seconds, double step_seconds) {
  return std::max(kFewestSteps, static_cast<int64_t>(seconds / step_seconds));
}

int64_t warmup_steps(int64_t steps, int64_t full_steps) {
  const int64_t wanted =
      std::max(kFewestWarmupSteps, share_of(kWarmupShare, std::max(steps, full_steps)));
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, steps / 2));
}

void fix_steps(record::Experiment& experiment, double epochs_of_step) {
  if (!experiment.training_seconds) {
    double most_epochs = 0;
    for (const record::SystemRecord& system : experiment.systems) {
      if (!system.step_seconds) continue;
      const int64_t steps = steps_within(experiment.budget_seconds, *system.step_seconds);
      const double share = static_cast<double>(system.tokens_per_step) /
                           static_cast<double>(experiment.tokens_per_step);
      most_epochs = std::max(most_epochs, static_cast<double>(steps) * share * epochs_of_step);
    }
    if (most_epochs == 0) return;  // nothing is measured
    experiment.training_seconds =
        experiment.budget_seconds * std::min(1.0, experiment.max_epochs / most_epochs);
  }
  for (record::SystemRecord& system : experiment.systems) {
    if (system.step_seconds && !system.steps)
      system.steps = steps_within(*experiment.training_seconds, *system.step_seconds);
  }
}

int64_t sweep_steps(int64_t steps) {
  return std::max(std::min(kFewestSweepSteps, steps), share_of(kSweepShare, steps));
}

Validations validations_of(const record::Experiment& experiment, int64_t split_batches) {
  int64_t fewest = 0;
  for (const record::SystemRecord& system : experiment.systems) {
    if (system.steps) fewest = fewest == 0 ? *system.steps : std::min(fewest, *system.steps);
  }
  const auto steps = static_cast<double>(fewest);
  const double one = kForwardShare * static_cast<double>(std::max<int64_t>(1, split_batches));
  const int64_t times = std::clamp(static_cast<int64_t>(kValidationShare * steps / one),
                                   kFewestValidations, kMostValidations);
  if (static_cast<double>(times) * one <= kMostValidationShare * steps) return {times, 0};
  return {times,
          share_of(kMostValidationShare / kForwardShare / static_cast<double>(times), fewest)};
}

std::map<std::string, std::string> knobs_of(const RunLength& length) {
  const bool is_training = length.purpose == RunPurpose::kTrain;
  const bool is_measured = length.purpose == RunPurpose::kMeasure;
  const int64_t steps = length.steps, batches = is_measured ? 1 : length.validations.batches;
  const auto checkpoint_every =
      length.step_seconds > 0
          ? static_cast<int64_t>(kSecondsBetweenCheckpoints / length.step_seconds) + 1
          : 0;
  std::map<std::string, std::string> knobs = {
      {"training.steps", std::to_string(length.steps)},
      {"training.seed", std::to_string(length.seed)},
      {"training.log_every", std::to_string(share_of(1.0 / kStepLines, steps))},
      {"training.sample_tokens", "0"},
      {"optimizer.learning_rate", fmt::format("{}", length.learning_rate)},
      {"optimizer.warmup_steps", std::to_string(warmup_steps(steps, length.full_steps))},
      {"training.validate_batches", std::to_string(batches)},
      // Told outright: the time a run took must not decide what it is compared on.
      {"training.last_validate_batches", std::to_string(is_training ? 0 : batches)},
      {"training.validate_every",
       std::to_string(
           is_training ? share_of(1.0 / static_cast<double>(length.validations.times), steps) : 0)},
      {"checkpoint.every", std::to_string(checkpoint_every)},
      {"checkpoint.keep_last", "1"}};
  // Measured are steps as they come often: at the full learning rate.
  if (is_measured) knobs.emplace("optimizer.final_learning_rate", "1");
  return knobs;
}

}  // namespace ballast::experiments
