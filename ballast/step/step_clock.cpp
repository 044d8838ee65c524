// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_clock.h"

#include <array>
#include <chrono>
#include <utility>

namespace ballast::step {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepClock::StepClock(at::Device device) : device_(device), now_(steady_seconds) {}

StepClock::StepClock(Seconds now) : now_(std::move(now)) {}

void StepClock::start() {
  parts_.clear();
  times_.clear();
  is_running_ = false;
  switch_to(StepPart::kOther);
  is_running_ = true;
  mark(StepPart::kOther);
}

void StepClock::switched(StepPart part) {
  if (is_running_) mark(part);
}

void StepClock::mark(StepPart begins) {
  const size_t index = parts_.size();
  parts_.push_back(begins);
  if (device_.is_cpu()) {
    times_.push_back(now_());
    return;
  }
  if (index == events_.size()) events_.push_back(kernels::make_gpu_event());
  events_[index]->record();
}

double StepClock::between(size_t mark) const {
  if (device_.is_cpu()) return times_[mark + 1] - times_[mark];
  return events_[mark]->seconds_until(*events_[mark + 1]);
}

void StepClock::stop() {
  TORCH_CHECK(is_running_, "StepClock: stopped before it was started");
  mark(StepPart::kOther);
  is_running_ = false;
}

std::vector<PartSeconds> StepClock::read() const {
  TORCH_CHECK(!is_running_ && !parts_.empty(), "StepClock: read before it was stopped");
  if (!device_.is_cpu()) events_[parts_.size() - 1]->synchronize();
  std::array<double, kStepParts> seconds{};
  std::array<bool, kStepParts> was_in{};
  for (size_t i = 0; i + 1 < parts_.size(); ++i) {
    const auto part = static_cast<size_t>(parts_[i]);
    seconds.at(part) += between(i);
    was_in.at(part) = true;
  }
  std::vector<PartSeconds> list;
  for (size_t part = 1; part < kStepParts; ++part) {
    if (was_in.at(part)) list.push_back({static_cast<StepPart>(part), seconds.at(part)});
  }
  return list;
}

}  // namespace ballast::step
