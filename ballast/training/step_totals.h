// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/model/language_model.h"

namespace ballast {

// How a layer of experts routed in one step.
struct LayerStats {
  int64_t place = 0;     // the last block before it
  double mean_gate = 0;  // of the tokens' weights of their first experts
  // Of BASE layers.
  double greedy_share = 0;  // of the tokens: their balanced expert is also their best
  // The largest of all assignments: 0 is the optimum. Of an inexact solver, whose prices prove
  // little, no more than a bound on what is missing.
  double relative_gap = 0;
  // Of gates.
  double dropped_share = 0;  // of the choices of experts: there was no place
  double passed_share = 0;   // of the tokens: none of their experts had one
  double balance_loss = 0;   // mean over groups and micro-steps, without its weight; near 1 is good
  // Of the worker that took longest.
  double assign_seconds = 0, exchange_seconds = 0;  // all_to_all, forward and backward
  at::Tensor prices = {};  // [E] float64, mean over groups and micro-steps; undefined: replayed
};

// What a worker knows after a step's backward passes.
struct WorkerTotals {
  at::Tensor loss_sum;  // [] float64, over its replica's targets
  // [] of gradients, after their reduction: of its part of what is divided among shards, of what
  // all workers hold, of its experts.
  at::Tensor shard_norm, common_norm, expert_norm;
};

// What they know together.
struct StepTotals {
  double loss_sum = 0;
  double expert_norm = 0;  // of all experts
  double clipped_by = 0;   // the norm that clipping goes by
  std::vector<LayerStats> layers;
};

// The same where it was computed: all of it stays in place when the step is a recorded graph.
struct StepSums {
  at::Tensor sums;  // [N] float64 over all workers: the first four as gradient_scale wants them
  at::Tensor norm;  // [1] float64: what gradient_scale found
  std::vector<RoutingStats> layers;  // of this worker
};

// Sums it up over the model's workers, what shards have alike once, and takes the layers'
// statistics. All workers get the same bits. Collective; nothing waits for a GPU.
StepSums sum_over_workers(const WorkerTotals& own, const LanguageModel& model,
                          StepWatch* watch = nullptr);
// Collective; waits for the device. UserError: an assignment was not valid.
StepTotals read_totals(const StepSums& sums, const LanguageModel& model);

}  // namespace ballast
