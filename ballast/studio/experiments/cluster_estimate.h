// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/studio/experiments/comparison.h"

namespace ballast::experiments {

// What the cost model expects of the systems of one panel, all on one cluster, so that its rows
// compare: the paper's V100 over InfiniBand, 128 of them, or as many as the panel has experts where
// those are fewer. Each worker, and each group of those that hold a replica together, gets the
// whole batch of the config. A system that the cost model has no answer for is left out.
record::ClusterEstimate estimate_on_cluster(const std::vector<const ComparedSystem*>& systems,
                                            int64_t experts);

}  // namespace ballast::experiments
