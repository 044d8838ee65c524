// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/ApproximateClock.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ballast/training/step_trace.h"
#include "ballast/training/trainer.h"
#include "tests/support/temporary_folder.h"

namespace ballast::test {

// Writes down when a step goes from part to part, and does something then.
class Moments : public step::StepWatch {
 public:
  explicit Moments(std::function<void(step::StepPart)> meanwhile)
      : meanwhile_(std::move(meanwhile)) {}
  const std::vector<int64_t>& times() const { return times_; }

 private:
  void switched(step::StepPart part) override {
    times_.push_back(c10::getTime());
    if (meanwhile_) meanwhile_(part);
  }

  std::function<void(step::StepPart)> meanwhile_;
  std::vector<int64_t> times_;
};

// Whether the host waits in a call of CUDA's. Memory that is not pinned is copied by
// cudaMemcpyAsync and then waited for; a copy that libtorch is told not to wait for, and memory
// that is allocated or freed, can hold up the host unseen here.
inline bool waits(const std::string& call) {
  return call.find("Synchronize") != std::string::npos || call == "cudaMemcpy" ||
         call == "cudaMemcpy2D";
}

struct HostWaits {
  int64_t launches = 0;  // of kernels
  std::vector<std::string> waits;
};

// What the trainer's next step, computed plainly, asks of CUDA from its first part to the end of
// its last, as the GPU's own profiler has it: before the host reads what came out.
inline HostWaits host_waits(training::Trainer& trainer,
                            std::function<void(step::StepPart)> meanwhile = {}) {
  const TemporaryFolder folder;
  Moments moments(std::move(meanwhile));
  training::StepTrace trace(trainer.place().device);
  trainer.step(&moments);
  trace.save(folder.path() / "trace.json");
  const nlohmann::json file = nlohmann::json::parse(read_text(folder.path() / "trace.json"));
  const auto base = file.value("baseTimeNanoseconds", int64_t{0});
  const auto microseconds = [&](int64_t time) { return static_cast<double>(time - base) / 1e3; };
  HostWaits found;
  for (const nlohmann::json& event : file.at("traceEvents")) {
    const std::string kind = event.value("cat", "");
    if (kind != "cuda_runtime" && kind != "cuda_driver") continue;
    const double time = event.at("ts").get<double>();
    if (time < microseconds(moments.times().front()) || time > microseconds(moments.times().back()))
      continue;
    const auto name = event.at("name").get<std::string>();
    if (waits(name)) found.waits.push_back(name);
    if (name.find("Launch") != std::string::npos) ++found.launches;
  }
  return found;
}

}  // namespace ballast::test
