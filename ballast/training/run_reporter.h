// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/record/run_directory.h"
#include "ballast/record/run_log.h"
#include "ballast/record/tensorboard.h"
#include "ballast/system/progress.h"
#include "ballast/training/run_memory.h"
#include "ballast/training/trainer.h"
#include "ballast/training/validation.h"

namespace ballast::training {

// Tells the world how a run goes: step lines and a progress bar on stderr, metrics.jsonl,
// TensorBoard and samples.txt in the run directory.
class RunReporter {
 public:
  // The run goes on from where the trainer stands. All must outlive this.
  RunReporter(const record::RunDirectory& run, const Trainer& trainer, const RunMemory& memory);

  void step(const StepStats& stats);
  void validation(int64_t step, const Validation& validation,
                  std::optional<double> floor_per_token);
  void sample(int64_t step, const std::string& text);
  void sync();  // before a checkpoint is committed

 private:
  std::vector<LinePart> step_parts(const StepStats& stats) const;
  void note_on_bar(const StepStats& stats);
  void report_use(const inference::Evaluation& result, experts::RoutingMode routing,
                  size_t layer) const;

  const Trainer& trainer_;
  const RunMemory& memory_;
  record::MetricsLog metrics_;
  record::SampleLog samples_;
  record::TensorboardWriter tensorboard_;
  Progress progress_;
  double flops_per_token_, matrix_rate_;
  // Since the last step line.
  double seconds_ = 0;
  int64_t tokens_ = 0;
  double bar_rate_ = 0;  // tokens a second over the last steps; 0: none yet
};

}  // namespace ballast::training
