// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/worker_grid.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/training/trainer.h"

namespace ballast::cli {

// A trainer whose data are random tokens, enough for eight batches.
training::Trainer make_bench_trainer(const config::Config& config, const model::ComputePlace& place,
                                     const comm::WorkerGrid& grid);

// Steps that come before those that are measured, where `steps` are a turn: on a GPU three are
// computed plainly, and the next is recorded.
int64_t warm_up_steps(int64_t steps);

// Steps that optimizer_seconds() takes.
constexpr int64_t kClockedSteps = 5;
// The time of the optimizer's part in a step: the median of some, which are computed plainly.
double optimizer_seconds(training::Trainer& trainer);

}  // namespace ballast::cli
