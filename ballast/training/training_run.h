// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "ballast/comm/world.h"
#include "ballast/config/config.h"
#include "ballast/inference/evaluate.h"
#include "ballast/record/run_directory.h"
#include "ballast/system/stop_signal.h"
#include "ballast/training/run_memory.h"
#include "ballast/training/run_reporter.h"
#include "ballast/training/train.h"
#include "ballast/training/trainer.h"
#include "ballast/training/training_data.h"

namespace ballast::training {

// A run under way: the trainer, what it reports to, and when it validates, samples and saves. Every
// worker has one; the run directory and what people see are worker 0's.
class TrainingRun {
 public:
  // `directory`: null on all but worker 0. All must outlive this.
  TrainingRun(const config::Config& config, const std::filesystem::path& run,
              record::RunDirectory* directory, TrainingData& data, comm::World& world);

  void resume(const checkpoint::Checkpoint& checkpoint);
  InitializedFrom initialize_from(const checkpoint::Checkpoint& checkpoint,
                                  const std::optional<Upcycling>& upcycling) {
    return trainer_.initialize_from(checkpoint, upcycling);
  }
  // Saves what it starts from as the checkpoint of step 0, so that the next start needs no other
  // weights.
  void save_start() { save(); }
  // To the end, or until a worker is asked to stop; saves either way. Worker 0 traces as many of
  // its steps as it is told to, in profile.json. Collective.
  TrainSummary go(int64_t profiled_steps);

  const Trainer& trainer() const { return trainer_; }

 private:
  void after_step(const StepStats& stats);
  void tell_last_step();  // unless it is told
  enum class Extent { kUsual, kLast };
  bool routes_in_several_ways() const;
  uint64_t windows_of(int64_t batches) const;
  // At most; 0: all. Unless a knob says how many: all, where that takes no more than a tenth of the
  // time spent training, by the speed of validations so far; else as many as usual. Collective.
  uint64_t windows_of_last(const batches::EvalWindows& windows);
  Validation evaluate_on(const batches::EvalWindows& windows, uint64_t max_windows, Extent extent);
  void validate();
  void keep_validation(const batches::EvalWindows& windows);
  bool lacks_validation() const;
  void sample();
  void save();
  void compare_workers();
  bool must_stop(const StopSignal& signal) const;
  TrainSummary summary(std::optional<double> last_loss);  // takes validation_

  config::Config config_;
  std::filesystem::path run_;
  record::RunDirectory* directory_;
  TrainingData& data_;
  comm::Communicator& workers_;
  model::ComputePlace place_;
  comm::WorkerGrid grid_;  // made once all know where they compute
  RunMemory memory_;       // of the trainer and what it does
  Trainer trainer_;
  std::optional<RunReporter> reporter_;  // worker 0's
  std::optional<StepStats> untold_;      // told while a GPU computes the next
  std::optional<Validation> validation_;
  std::optional<double> window_seconds_;  // of a validation's window, the fastest so far
  std::string sample_;
  std::filesystem::path checkpoint_;
  int64_t saved_at_ = -1, validated_at_ = -1, sampled_at_ = -1;
  // max_time counts from here, for each start anew.
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace ballast::training
