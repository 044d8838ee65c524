// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/model/language_model.h"

namespace ballast::training {

// How a layer of experts routed in one step.
struct LayerStats {
  int64_t place = 0;     // the last block before it
  double mean_gate = 0;  // of the tokens' weights of their first experts
  // Of BASE layers.
  double greedy_share = 0;  // share of the tokens whose balanced expert is also their best
  // The largest assignment::relative_gap of all assignments; 0 is the optimum. With an inexact
  // solver it is only a bound on what is missing, since its prices prove little.
  double relative_gap = 0;
  // Of gates.
  double dropped_share = 0;  // share of the choices that found no place
  double passed_share = 0;   // share of the tokens none of whose experts had a place
  double balance_loss = 0;   // mean over groups and micro-steps, without its weight; near 1 is good
  // Of the worker that took longest.
  double assign_seconds = 0, exchange_seconds = 0;  // all_to_all, forward and backward
  at::Tensor prices = {};  // [E] float64, mean over groups and micro-steps; undefined: replayed
};

// What a worker knows after a step's backward passes.
struct WorkerTotals {
  at::Tensor loss_sum;  // [] float64, over its replica's targets
  // [] norms of gradients after their reduction: of its part of what shards divide, of what all
  // workers hold, of its experts; and of what has divided state, which is in none of these;
  // undefined: there is none.
  at::Tensor shard_norm, common_norm, expert_norm, divided_norm;
};

// What they know together.
struct StepTotals {
  double loss_sum = 0;
  double expert_norm = 0;  // of all experts
  double clipped_by = 0;   // the norm that clipping goes by
  std::vector<LayerStats> layers;
};

// The same on the device that computed it. It stays in place when the step is a recorded graph.
struct StepSums {
  at::Tensor sums;  // [N] float64 over all workers: the first four as gradient_scale wants them
  // What the host reads, in one piece: [N] uint8: as float64 the norm that gradient_scale found and
  // the sums, then the statuses of the layers' assignments.
  at::Tensor told;
  std::vector<experts::RoutingStats> layers;  // of this worker
};

// Sums up over the model's workers, and takes the layers' statistics. What shards have alike counts
// once. All workers get the same bits. Collective; nothing waits for a GPU.
StepSums sum_over_workers(const WorkerTotals& own, const model::LanguageModel& model,
                          step::StepWatch* watch = nullptr);
// Sets sums.told. Nothing waits for a GPU.
void tell_host(StepSums& sums, const at::Tensor& norm);
// Collective; waits for the device. REQUIRES: tell_host. UserError: an assignment was not valid.
StepTotals read_totals(const StepSums& sums, const model::LanguageModel& model);

}  // namespace ballast::training
