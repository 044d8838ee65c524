// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "ballast/comm/worker_grid.h"
#include "ballast/config/system_words.h"
#include "ballast/model/model_size.h"
#include "ballast/system/progress.h"
#include "cli/bench/median.h"
#include "cli/bench/trainer.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json measure_systems(const std::vector<std::string>& names,
                     const std::vector<config::Config>& configs, const SystemTurns& turns,
                     const model::ComputePlace& place, comm::Communicator& workers) {
  std::vector<std::unique_ptr<training::Trainer>> trainers;
  std::vector<std::vector<double>> seconds(configs.size());
  for (const config::Config& config : configs) {
    trainers.emplace_back(new training::Trainer(make_bench_trainer(
        config, place, comm::WorkerGrid(workers, config.training.model_parallel))));
  }
  for (int64_t round = 0; round <= turns.rounds; ++round) {  // the first warms up
    for (size_t i = 0; i < trainers.size(); ++i) {
      const int64_t steps = round == 0 ? warm_up_steps(turns.steps) : turns.steps;
      for (int64_t step = 0; step < steps; ++step) {
        const double taken = trainers[i]->step().seconds;
        if (round > 0) seconds[i].push_back(taken);
      }
    }
  }
  Json systems = Json::array();
  for (size_t i = 0; i < configs.size(); ++i) {
    const config::Config& config = configs[i];
    const model::ModelSize size = model::model_size(config);
    const auto tokens = static_cast<double>(config.training.batch * config.model.context);
    const config::ExpertsConfig& experts = config.experts;
    const bool is_between = experts.layers > 0 && !experts.replaces_feed_forwards();
    systems.push_back(
        {{"system", names[i]},
         {"words", config::system_in_words(config)},
         {"shards", trainers[i]->grid().num_shards()},
         {"sublayers", is_between ? Json(experts.layers * experts.sublayers_of_layer()) : Json()},
         {"parameters", size.total},
         {"parameters_of_worker", trainers[i]->table().num_parameters()},
         {"active", size.active},
         {"flops_per_token", size.flops_per_token},
         {"step_ms", 1e3 * median(seconds[i])},
         {"fastest_ms", 1e3 * std::ranges::min(seconds[i])},
         {"tokens_per_second", tokens / median(seconds[i])},
         {"of_dense", nullptr}});
  }
  const auto dense = std::ranges::find(names, "dense");
  if (dense == names.end()) return systems;
  const double speed = systems[dense - names.begin()]["tokens_per_second"].get<double>();
  for (Json& system : systems)
    system["of_dense"] = system["tokens_per_second"].get<double>() / speed;
  return systems;
}

std::string line_of_system(const Json& size, const Json& system) {
  std::string of_dense;
  if (!system["of_dense"].is_null())
    of_dense = fmt::format(" | {:.3f} of dense", system["of_dense"].get<double>());
  return fmt::format(
      "V={} D={} L={} S={} B={} | {:14} | {} parameters, {} a worker | {:.2f} ms a step | {:.0f} "
      "tok/s{}",
      size["vocabulary"].get<int64_t>(), size["width"].get<int64_t>(),
      size["layers"].get<int64_t>(), size["context"].get<int64_t>(), size["batch"].get<int64_t>(),
      system["system"].get<std::string>(), format_count(system["parameters"].get<double>()),
      format_count(system["parameters_of_worker"].get<double>()), system["step_ms"].get<double>(),
      system["tokens_per_second"].get<double>(), of_dense);
}

}  // namespace ballast::cli
