// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ballast/comm/worker_grid.h"
#include "tests/comm/workers.h"

namespace ballast::test {

// Every way to divide the workers that run these tests into up to four shards. Collective.
inline std::vector<comm::WorkerGrid> divisions() {
  std::vector<comm::WorkerGrid> grids;
  for (const int64_t shards : {1, 2, 4}) {
    if (everyone().size() % shards == 0) grids.emplace_back(everyone(), shards);
  }
  return grids;
}

inline std::string name_of(const comm::WorkerGrid& grid) {
  return fmt::format("{} shards of {} replicas", grid.num_shards(), grid.num_replicas());
}

}  // namespace ballast::test
