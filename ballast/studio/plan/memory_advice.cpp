// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/memory_advice.h"

#include <fmt/format.h>

#include <optional>

#include "ballast/system/error.h"
#include "ballast/system/progress.h"

namespace ballast::plan {
namespace {

// That layout, where it is possible and fits.
std::optional<LayoutPlan> fitting(config::Config config, const Cluster& cluster) {
  if (config.experts.groups == 0) config.experts.groups = cluster.workers;
  try {
    config::check_workers(config, cluster.workers);
  } catch (const UserError&) {
    return std::nullopt;
  }
  const LayoutPlan layout = plan_layout(config, cluster);
  return layout.fits ? std::optional(layout) : std::nullopt;
}

std::string described(const std::string& change, const LayoutPlan& layout) {
  return fmt::format("{}: {} a worker, {} tokens/s", change, format_bytes(layout.memory.total()),
                     format_count(layout.tokens_per_second));
}

std::optional<std::string> by_micro_steps(config::Config config, const Cluster& cluster) {
  const int64_t replicas = cluster.workers / config.training.model_parallel;
  for (int64_t times = 2; config.training.batch / config.training.micro_steps / times >= replicas;
       times *= 2) {
    config::Config shorter = config;
    shorter.training.micro_steps *= times;
    if (shorter.training.batch % shorter.training.micro_steps != 0) return std::nullopt;
    if (const auto layout = fitting(shorter, cluster))
      return described(fmt::format("--training.micro_steps {}", shorter.training.micro_steps),
                       *layout);
  }
  return std::nullopt;
}

std::optional<std::string> by_recomputing(config::Config config, const Cluster& cluster) {
  if (config.training.recompute == config::Recompute::kBlocks) return std::nullopt;
  config.training.recompute = config::Recompute::kBlocks;
  const auto layout = fitting(config, cluster);
  return layout ? std::optional(described("--training.recompute blocks", *layout)) : std::nullopt;
}

std::optional<std::string> by_dividing_state(config::Config config, const Cluster& cluster) {
  if (config.training.shard_optimizer || cluster.workers == 1) return std::nullopt;
  config.training.shard_optimizer = true;
  const auto layout = fitting(config, cluster);
  return layout ? std::optional(described("--training.shard_optimizer true", *layout))
                : std::nullopt;
}

std::optional<std::string> by_shards(config::Config config, const Cluster& cluster) {
  for (config.training.model_parallel *= 2; config.training.model_parallel <= 8;
       config.training.model_parallel *= 2) {
    if (const auto layout = fitting(config, cluster))
      return described(fmt::format("--model-parallel {}", config.training.model_parallel), *layout);
  }
  return std::nullopt;
}

std::optional<std::string> by_workers(const config::Config& config, Cluster cluster) {
  constexpr int64_t kMost = 4096;
  for (cluster.workers *= 2; cluster.workers <= kMost; cluster.workers *= 2) {
    if (const auto layout = fitting(config, cluster))
      return described(fmt::format("--workers {}", cluster.workers), *layout);
  }
  return std::nullopt;
}

std::optional<std::string> by_device(const config::Config& config, Cluster cluster) {
  const double own = cluster.of_worker().memory;
  for (const std::string& name : device_names()) {
    cluster.device = find_device(name);
    if (cluster.device.is_cpu() || cluster.device.memory <= own) continue;
    if (const auto layout = fitting(config, cluster))
      return described(fmt::format("--device {}", name), *layout);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> advice_on_memory(const config::Config& config, const Cluster& cluster) {
  std::vector<std::string> advice;
  for (const auto& way : {by_micro_steps(config, cluster), by_recomputing(config, cluster),
                          by_dividing_state(config, cluster), by_shards(config, cluster),
                          by_workers(config, cluster), by_device(config, cluster)}) {
    if (way) advice.push_back(*way);
  }
  return advice;
}

}  // namespace ballast::plan
