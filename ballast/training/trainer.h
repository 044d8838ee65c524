// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/batches/batch_stream.h"
#include "ballast/comm/worker_grid.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/step/step_clock.h"
#include "ballast/step/step_inputs.h"
#include "ballast/training/gradient_reducer.h"
#include "ballast/training/optimizer.h"
#include "ballast/training/step_batches.h"
#include "ballast/training/step_graphs.h"
#include "ballast/training/step_totals.h"
#include "ballast/training/training_state.h"
#include "ballast/training/upcycle.h"

namespace ballast::training {

struct StepStats {
  int64_t step = 0;                 // steps done, this one included
  double loss = 0;                  // mean over the step's tokens, before the update
  double gradient_norm = 0;         // of what is clipped by, before clipping
  double expert_gradient_norm = 0;  // of all experts; 0: there are none
  double learning_rate = 0;
  double seconds = 0;              // of this step
  int64_t tokens = 0;              // of this step
  std::string skipped;             // why the weights were not moved; empty: they were
  std::vector<LayerStats> layers;  // layers of experts, in their order
  // Where this worker's time went. Empty unless the step is logged and nobody watches it. What is
  // left of `seconds` is data and the host's own work.
  std::vector<step::PartSeconds> parts = {};
};

// Whether a step, counted from 1, is one that people are told of.
bool is_logged(int64_t step, const config::TrainingConfig& config);

// A model being trained: what a step computes, not how it is watched or kept. Each worker makes
// one, of the same config; all call the same functions in the same order.
class Trainer {
 public:
  // Weights are freshly initialised. Collective. REQUIRES: config.model.vocabulary and
  // config.experts.groups are resolved, check_workers(config) passes, the grid's everyone()
  // outlives this.
  Trainer(const config::Config& config, const model::ComputePlace& place,
          std::vector<batches::WeightedSource> sources, const comm::WorkerGrid& grid);

  Trainer(const Trainer&) = delete;  // parts of it refer to each other
  Trainer& operator=(const Trainer&) = delete;

  void resume(const checkpoint::Checkpoint& checkpoint);
  // Takes the weights a checkpoint has, and leaves fresh what it lacks. See initialize_from and
  // copy_feed_forwards; the seed of upcycling is the run's.
  InitializedFrom initialize_from(const checkpoint::Checkpoint& checkpoint,
                                  std::optional<Upcycling> upcycling = {});
  // One step: the next batch in micro-steps, then the optimizer. The numbers are those of all
  // workers. Throws UserError when too many steps in a row had to be skipped. After a step that
  // threw there must be no other: gradients may be half done. `watch` is told of its parts in place
  // of the clock; the step is then computed plainly, with the same numbers. `meanwhile` is done
  // while a GPU computes, else before the step is computed; state() is still that of the step
  // before.
  StepStats step(step::StepWatch* watch = nullptr, const std::function<void()>& meanwhile = {});
  // The steps to come are computed plainly, and `tape` repeats or keeps their assignments. It must
  // outlive them.
  void use_tape(experts::RouteTape* tape);

  const config::Config& config() const { return config_; }
  const model::ComputePlace& place() const { return place_; }
  const model::LanguageModel& model() const { return model_; }
  const parameters::ParameterTable& table() const { return table_; }
  const TrainingState& state() const { return state_; }
  const batches::BatchStream& batches() const { return batches_; }
  const comm::WorkerGrid& grid() const { return grid_; }
  comm::Communicator& workers() const { return grid_.everyone(); }
  // Why steps are computed plainly; empty: as a graph, after the first few.
  const std::string& why_plain() const { return graphs_.reason(); }

 private:
  // The next step, where the weights are: nothing waits for a GPU.
  StepSums compute(const std::vector<loading::BatchTensors>& batches);
  // Of these micro-steps; returns the sum of losses here.
  at::Tensor add_gradients(const std::vector<loading::BatchTensors>& batches);
  StepSums sum_up(const at::Tensor& loss_sum);
  void update_weights(StepSums& sums);
  at::Tensor numbers_of_step() const;
  void judge(StepStats& stats, const StepTotals& totals);
  void enter(step::StepPart part) const;
  experts::Routing routing(int64_t micro_step);
  void average_prices(const std::vector<LayerStats>& layers);
  void share_initial_weights();
  void start_reading();  // from the batch of state_.step on

  config::Config config_;
  model::ComputePlace place_;
  const comm::WorkerGrid grid_;
  parameters::ParameterTable table_;
  model::LanguageModel model_;
  std::optional<Optimizer> optimizer_;
  std::optional<GradientReducer> reducer_;
  batches::BatchStream batches_;
  TrainingState state_;
  StepBatches step_batches_;  // one batch for each micro-step
  step::StepInputs inputs_;
  StepGraphs graphs_;
  experts::RouteTape* tape_ = nullptr;
  step::StepClock clock_;
  step::StepWatch* watch_ = nullptr;  // of the step under way: the clock, or who was given
};

}  // namespace ballast::training
