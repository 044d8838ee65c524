// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/model/language_model.h"

namespace ballast {

// How a layer of experts routed in one step.
struct LayerStats {
  int64_t place = 0;  // the last block before it
  // Of BASE layers.
  double greedy_share = 0;  // of the tokens: their balanced expert is also their best
  double relative_gap = 0;  // the largest of all assignments: 0 is the optimum
  // Of gates.
  double dropped_share = 0;  // of the choices of experts: there was no place
  double balance_loss = 0;   // mean over groups and micro-steps, without its weight: 1 is balance
  // Of the worker that took longest.
  double assign_seconds = 0, exchange_seconds = 0;  // all_to_all, forward and backward
  at::Tensor prices = {};  // [E] float64, mean over groups and micro-steps; undefined: replayed
};

// What a worker knows after a step's backward passes.
struct WorkerTotals {
  at::Tensor loss_sum;     // [] float64, over its targets
  at::Tensor shared_norm;  // [] of the gradients of shared parameters, after their reduction
  at::Tensor expert_norm;  // [] of the gradients of its experts
};

// What they know together.
struct StepTotals {
  double loss_sum = 0;
  double shared_norm = 0;  // worker 0's: another's may differ in its last bit
  double expert_norm = 0;  // of all experts
  std::vector<LayerStats> layers;
};

// Sums it up over all workers, and takes the layers' statistics. Collective; waits for the device.
StepTotals sum_over_workers(const WorkerTotals& own, const LanguageModel& model,
                            Communicator& workers);

}  // namespace ballast
