// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ballast/batches/batch_stream.h"
#include "ballast/batches/prefetcher.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/training/optimizer.h"
#include "ballast/training/training_state.h"

namespace ballast {

struct StepStats {
  int64_t step = 0;          // steps done, this one included
  double loss = 0;           // mean over the step's tokens, before the update
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double seconds = 0;   // of this step
  int64_t tokens = 0;   // of this step
  std::string skipped;  // why the weights were not moved; empty: they were
};

// A model being trained: what a step computes, and nothing of how it is watched or kept.
class Trainer {
 public:
  // Weights are freshly initialised. REQUIRES: config.model.vocabulary is resolved.
  Trainer(const Config& config, const ComputePlace& place, std::vector<WeightedSource> sources);

  Trainer(const Trainer&) = delete;  // parts of it refer to each other
  Trainer& operator=(const Trainer&) = delete;

  void resume(const Checkpoint& checkpoint);
  // One step: the next batch in micro-steps, then the optimizer. Throws UserError when too many
  // steps in a row had to be skipped.
  StepStats step();

  const Config& config() const { return config_; }
  const ComputePlace& place() const { return place_; }
  const LanguageModel& model() const { return model_; }
  const ParameterTable& table() const { return table_; }
  const TrainingState& state() const { return state_; }
  const BatchStream& batches() const { return batches_; }

 private:
  double add_gradients();  // of the next step's batch; returns its mean loss
  void start_reading();    // from the batch of state_.step on

  Config config_;
  ComputePlace place_;
  ParameterTable table_;
  LanguageModel model_;
  Optimizer optimizer_;
  BatchStream batches_;
  TrainingState state_;
  std::unique_ptr<Prefetcher> prefetcher_;  // one batch for each micro-step
};

}  // namespace ballast
