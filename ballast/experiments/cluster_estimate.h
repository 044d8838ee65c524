// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ballast/experiments/comparison.h"

namespace ballast {

// What the cost model expects of a system on the paper's cluster, 128 V100 over InfiniBand, or on
// as many of them as it has experts, where those are fewer. Each worker, and each group of those
// that hold a replica together, gets the whole batch of the config. None: the cost model has no
// answer for it.
std::optional<ClusterEstimate> estimate_on_cluster(const ComparedSystem& system);

}  // namespace ballast
