// SPDX-License-Identifier: Apache-2.0
#include "ballast/experiments/cluster_estimate.h"

#include <algorithm>

#include "ballast/plan/plan.h"
#include "ballast/system/error.h"

namespace ballast {

std::optional<ClusterEstimate> estimate_on_cluster(const ComparedSystem& system) {
  constexpr int64_t kWorkers = 128;
  Config config = system.config;
  const ExpertsConfig& experts = config.experts;
  Cluster cluster;
  cluster.workers = experts.layers > 0 ? std::min(kWorkers, experts.count) : kWorkers;
  config.experts.groups = 0;
  config.training.model_parallel = system.shards;
  config.training.batch *= cluster.workers / system.shards;
  try {
    cluster.device = find_device("v100");
    cluster.network = find_network("infiniband");
    const Plan plan = make_plan(config, cluster);
    return ClusterEstimate{cluster.workers, cluster.device.name, cluster.network.name,
                           plan.own().tokens_per_second};
  } catch (const UserError&) {  // a number of experts, say, that its workers do not divide
    return std::nullopt;
  }
}

}  // namespace ballast
