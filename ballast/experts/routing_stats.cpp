// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing_stats.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace ballast {
namespace {

c10::Event record_now(at::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

void DeviceTimer::begin(at::Device device) {
  device_ = device;
  on_gpu_ = !device.is_cpu();
  begun_ = std::chrono::steady_clock::now();
  if (on_gpu_) spans_.emplace_back(record_now(device), record_now(device));
}

void DeviceTimer::end() {
  if (on_gpu_) {
    spans_.back().second = record_now(device_);
  } else {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
}

double DeviceTimer::take_seconds() {
  for (auto& [begin, end] : spans_) {
    end.synchronize();
    seconds_ += 1e-3 * begin.elapsedTime(end);
  }
  spans_.clear();
  return std::exchange(seconds_, 0);
}

}  // namespace ballast
