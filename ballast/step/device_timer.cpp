// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/device_timer.h"

namespace ballast::step {

void DeviceTimer::begin(at::Device device) {
  on_gpu_ = !device.is_cpu();
  begun_ = std::chrono::steady_clock::now();
  if (!on_gpu_) return;
  spans_.push_back({kernels::make_gpu_event(), kernels::make_gpu_event()});
  spans_.back().begin->record();
}

void DeviceTimer::end() {
  if (on_gpu_) {
    spans_.back().end->record();
  } else {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
}

double DeviceTimer::seconds() const {
  double sum = seconds_;
  for (const Span& span : spans_) {
    span.end->synchronize();
    sum += span.begin->seconds_until(*span.end);
  }
  return sum;
}

double DeviceTimer::take_seconds() {
  const double sum = seconds();
  spans_.clear();
  seconds_ = 0;
  return sum;
}

}  // namespace ballast::step
