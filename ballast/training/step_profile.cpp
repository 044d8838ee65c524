// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_profile.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "ballast/system/log.h"

namespace ballast::training {
namespace {

// In the first steps libraries choose algorithms and allocate; the next would be recorded as a
// graph, which has memory of its own.
constexpr int64_t kStepsBefore = 3;

class Bystander : public step::StepWatch {
  void switched(step::StepPart) override {}
};

}  // namespace

StepProfile::StepProfile(int64_t steps, int64_t steps_to_come, fs::path file)
    : steps_before_(std::clamp<int64_t>(steps_to_come - steps, 0, kStepsBefore)),
      steps_left_(steps),
      file_(std::move(file)) {}

StepStats StepProfile::step(Trainer& trainer, const std::function<void()>& meanwhile) {
  if (steps_left_ == 0 || steps_before_ > 0) {
    --steps_before_;
    return trainer.step(nullptr, meanwhile);
  }
  if (file_.empty()) {
    --steps_left_;
    Bystander bystander;
    return trainer.step(&bystander, meanwhile);
  }
  if (!trace_) {
    trace_.emplace(trainer.place().device);
    first_ = trainer.state().step + 1;
  }
  trace_->begin_step(trainer.state().step + 1);
  StepStats stats = trainer.step(&*trace_, meanwhile);
  trace_->end_step();
  last_ = stats.step;
  if (--steps_left_ == 0) finish();
  return stats;
}

void StepProfile::finish() {
  if (!trace_) return;
  steps_left_ = 0;
  try {
    trace_->save(file_);
  } catch (const std::exception& error) {  // no reason to end a training
    log_warning("profile: {} cannot be written: {}", file_.string(), error.what());
    trace_.reset();
    return;
  }
  trace_.reset();
  log_info(
      "profile: steps {} to {} are in {}; open it at https://ui.perfetto.dev or in "
      "chrome://tracing",
      first_, last_, file_.string());
}

}  // namespace ballast::training
