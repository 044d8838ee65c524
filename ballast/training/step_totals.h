// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/model/language_model.h"

namespace ballast {

// How a BASE layer routed in one step.
struct LayerStats {
  int64_t place = 0;            // blocks before it
  double greedy_share = 0;      // of the tokens: their balanced expert is also their best
  double relative_gap = 0;      // the largest of the assignments solved here: 0 is the optimum
  double assign_seconds = 0;    // here
  double exchange_seconds = 0;  // here, in all_to_all, forward and backward
  at::Tensor prices;  // [E] float64, mean over groups and micro-steps; undefined: replayed
};

// What the workers know together after a step's backward passes.
struct StepTotals {
  double loss_sum = 0;     // over all targets
  double expert_norm = 0;  // of the gradients of all experts
  std::vector<LayerStats> layers;
};

// Sums it up over all workers in one call, and takes the layers' statistics. `loss_sum` [] float64
// and `expert_norm` [] are this worker's. Collective; waits for the device.
StepTotals sum_over_workers(const at::Tensor& loss_sum, const at::Tensor& expert_norm,
                            const LanguageModel& model, Communicator& workers);

}  // namespace ballast
