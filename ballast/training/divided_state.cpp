// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/divided_state.h"

namespace ballast::training {

using parameters::Owner;

std::vector<parameters::StateDivision> state_divisions(const comm::WorkerGrid& grid) {
  std::vector<parameters::StateDivision> divisions;
  if (grid.num_shards() > 1 && grid.num_replicas() > 1)
    divisions.push_back({Owner::kShard, Owner::kShard, grid.replica(), grid.num_replicas()});
  if (const comm::Communicator& all = grid.everyone(); all.size() > 1)
    divisions.push_back({Owner::kShared, Owner::kRouter, all.rank(), all.size()});
  return divisions;
}

comm::Communicator& sharers_of(const parameters::HeldState::Chunk& chunk,
                               const parameters::ParameterTable& table,
                               const comm::WorkerGrid& grid) {
  return chunk.all.begin < table.range(Owner::kShard).end ? grid.replicas() : grid.everyone();
}

void gather_weights(const parameters::ParameterTable& table, const comm::WorkerGrid& grid) {
  for (const parameters::HeldState::Chunk& chunk : table.held().chunks()) {
    sharers_of(chunk, table, grid)
        .all_gather(chunk.all.of(table.working()), chunk.own.of(table.working()), {"weights"});
  }
}

}  // namespace ballast::training
