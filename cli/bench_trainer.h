// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/worker_grid.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "ballast/training/trainer.h"

namespace ballast::cli {

// A trainer whose data are random tokens, enough for eight batches.
Trainer make_bench_trainer(const Config& config, const ComputePlace& place, const WorkerGrid& grid);

}  // namespace ballast::cli
