// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/step/step_watch.h"
#include "ballast/system/file.h"

namespace ballast::training {

// Writes steps as a file of trace events (JSON), which Chrome's and Perfetto's viewers open
// (docs/profiling.md). It has operators and a GPU's kernels from libtorch's profiler, and tracks of
// our own with the steps and their parts. One at a time in a process.
class StepTrace : public step::StepWatch {
 public:
  struct Span {
    std::string name;
    int64_t begin = 0, end = 0;  // nanoseconds since 1970
  };

  // Recording begins: of the operators that this thread starts, and autograd for it.
  explicit StepTrace(at::Device device);
  ~StepTrace() override;  // what was not saved is lost
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  void begin_step(int64_t step);
  // REQUIRES: one was begun, and the device has done its work.
  void end_step();
  // Recording ends; the file is written as a whole or not at all.
  void save(const fs::path& path);

 private:
  void switched(step::StepPart part) override;
  void end_part(int64_t now);

  at::Device device_;
  bool is_recording_ = true, is_in_step_ = false;
  std::vector<Span> steps_, parts_;  // in their order
  step::StepPart open_ =
      step::StepPart::kOther;  // the last of parts_ is this one, and has no end yet
};

}  // namespace ballast::training
