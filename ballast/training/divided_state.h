// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/comm/worker_grid.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::training {

// Adam's state of parameters that several workers hold, divided among these (docs/optimizers.md,
// "State divided among workers"): a shard's among its replicas, what all hold among everyone.

// What the table of a worker of this grid is to be allocated with. Empty where each is alone.
std::vector<parameters::StateDivision> state_divisions(const comm::WorkerGrid& grid);

// The workers that divide a chunk of such a table.
comm::Communicator& sharers_of(const parameters::HeldState::Chunk& chunk,
                               const parameters::ParameterTable& table,
                               const comm::WorkerGrid& grid);

// Working weights come together again after each worker has moved its parts. Collective.
void gather_weights(const parameters::ParameterTable& table, const comm::WorkerGrid& grid);

}  // namespace ballast::training
