// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ballast/system/file.h"
#include "ballast/training/step_trace.h"
#include "ballast/training/trainer.h"

namespace ballast::training {

// Runs the steps of a run and traces some of them. Three untraced steps come first, fewer where too
// few steps are to come.
class StepProfile {
 public:
  // `steps`: how many to trace, 0: none; the same on all workers. `file`: where the trace goes;
  // empty: another worker writes it, and this one only computes those steps plainly, as that one
  // does.
  StepProfile(int64_t steps, int64_t steps_to_come, fs::path file);

  // trainer.step(). After the last traced step the file is written, and a line says so.
  StepStats step(Trainer& trainer, const std::function<void()>& meanwhile);
  // The run ends: a trace that is not yet written is written.
  void finish();

 private:
  int64_t steps_before_, steps_left_;
  int64_t first_ = 0, last_ = 0;  // traced so far, counted from 1
  fs::path file_;
  std::optional<StepTrace> trace_;
};

}  // namespace ballast::training
