// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/cluster_estimate.h"

#include <algorithm>
#include <optional>

#include "ballast/studio/plan/plan.h"
#include "ballast/system/error.h"

namespace ballast::experiments {
namespace {

std::optional<double> rate_on(const plan::Cluster& cluster, const ComparedSystem& system) {
  if (cluster.workers % system.shards != 0) return std::nullopt;
  config::Config config = system.config;
  config.experts.groups = 0;
  config.training.model_parallel = system.shards;
  config.training.batch *= cluster.workers;  // in M shards it has an M-th of both
  try {
    return plan::make_plan(config, cluster).own().tokens_per_second;
  } catch (const UserError&) {  // a number of experts, say, that its workers do not divide
    return std::nullopt;
  }
}

}  // namespace

record::ClusterEstimate estimate_on_cluster(const std::vector<const ComparedSystem*>& systems,
                                            int64_t experts) {
  constexpr int64_t kWorkers = 128;
  plan::Cluster cluster;
  cluster.workers = std::min(kWorkers, experts);
  cluster.device = plan::find_device("v100");
  cluster.network = plan::find_network("infiniband");
  record::ClusterEstimate estimate{cluster.workers, cluster.device.name, cluster.network.name, {}};
  for (const ComparedSystem* system : systems) {
    if (const auto rate = rate_on(cluster, *system)) estimate.tokens_per_second[system->id] = *rate;
  }
  return estimate;
}

}  // namespace ballast::experiments
