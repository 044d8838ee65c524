// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "ballast/system/file.h"
#include "ballast/training/step_trace.h"
#include "ballast/training/trainer.h"

namespace ballast {

// Has a run's steps computed and traces some of them: after three others, or fewer where too few
// steps are to come.
class StepProfile {
 public:
  // `steps`: how many to trace, 0: none; the same on all workers. `file`: the trace's; empty:
  // another worker's, and the steps are computed as those that are traced, plainly.
  StepProfile(int64_t steps, int64_t steps_to_come, fs::path file);

  // trainer.step(). After the last that is traced the file is written, and a line says so.
  StepStats step(Trainer& trainer);
  // The run ends: what was traced and is not yet written is.
  void finish();

 private:
  int64_t steps_before_, steps_left_;
  int64_t first_ = 0, last_ = 0;  // traced so far, counted from 1
  fs::path file_;
  std::optional<StepTrace> trace_;
};

}  // namespace ballast
