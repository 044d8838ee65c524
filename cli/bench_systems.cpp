// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_systems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "ballast/comm/worker_grid.h"
#include "ballast/config/system_words.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "cli/bench_trainer.h"
#include "cli/median.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct System {
  const char* name;
  std::function<void(Config&, const SystemExperts&, int64_t workers)> configure;
};

void put_base_layers(Config& config, const SystemExperts& experts, int64_t layers) {
  if (experts.sublayers % layers != 0)
    fail("--experts: {} BASE layers do not divide {} sublayers", layers, experts.sublayers);
  config.experts.layers = layers;
  config.experts.sublayers = experts.sublayers / layers;
}

void put_gates(Config& config, const char* router) {
  set_knob(config, "experts.router", router);
  set_knob(config, "experts.placement", "replace");
  config.experts.layers = std::max<int64_t>(1, config.model.layers / 2);
}

const std::vector<System>& all_systems() {
  static const std::vector<System> systems{
      {"dense", [](Config&, const SystemExperts&, int64_t) {}},
      {"model_parallel",
       [](Config& config, const SystemExperts&, int64_t workers) {
         if (workers == 1) fail("--systems: model_parallel wants several workers (--workers)");
         config.training.model_parallel = workers;
       }},
      {"base", [](Config& c, const SystemExperts& e, int64_t) { put_base_layers(c, e, 1); }},
      {"base_x3", [](Config& c, const SystemExperts& e, int64_t) { put_base_layers(c, e, 3); }},
      {"sparsely_gated",
       [](Config& c, const SystemExperts&, int64_t) { put_gates(c, "sparsely_gated"); }},
      {"switch", [](Config& c, const SystemExperts&, int64_t) { put_gates(c, "switch"); }}};
  return systems;
}

const System& find_system(const std::string& name) {
  std::vector<std::string> names;
  for (const System& system : all_systems()) {
    if (system.name == name) return system;
    names.emplace_back(system.name);
  }
  fail("--systems: there is no \"{}\"; want all, or some of {}", name, fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> parse_systems(const std::string& text, int64_t workers) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const System& system : all_systems()) {
      if (workers > 1 || std::string(system.name) != "model_parallel")
        names.emplace_back(system.name);
    }
    return names;
  }
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');)
    names.emplace_back(find_system(name).name);
  if (names.empty()) find_system("");
  return names;
}

Config config_of_system(const std::string& name, const Config& dense, const SystemExperts& experts,
                        int64_t workers) {
  Config config = dense;
  set_knob(config, "experts.count", std::to_string(experts.count));
  config.experts.groups = experts.groups > 0 ? experts.groups : workers;
  find_system(name).configure(config, experts, workers);
  check_config(config);
  check_workers(config, workers);
  return config;
}

Json measure_systems(const std::vector<std::string>& names, const std::vector<Config>& configs,
                     const SystemTurns& turns, const ComputePlace& place, Communicator& workers) {
  std::vector<std::unique_ptr<Trainer>> trainers;
  std::vector<std::vector<double>> seconds(configs.size());
  for (const Config& config : configs) {
    trainers.emplace_back(new Trainer(
        make_bench_trainer(config, place, WorkerGrid(workers, config.training.model_parallel))));
  }
  for (int64_t round = 0; round <= turns.rounds; ++round) {  // the first warms up
    for (size_t i = 0; i < trainers.size(); ++i) {
      for (int64_t step = 0; step < turns.steps; ++step) {
        const double taken = trainers[i]->step().seconds;
        if (round > 0) seconds[i].push_back(taken);
      }
    }
  }
  Json systems = Json::array();
  for (size_t i = 0; i < configs.size(); ++i) {
    const Config& config = configs[i];
    const ModelSize size = model_size(config);
    const auto tokens = static_cast<double>(config.training.batch * config.model.context);
    systems.push_back({{"system", names[i]},
                       {"words", system_in_words(config)},
                       {"parameters", size.total},
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
      "V={} D={} L={} S={} B={} | {:14} | {} parameters | {:.2f} ms a step | {:.0f} tok/s{}",
      size["vocabulary"].get<int64_t>(), size["width"].get<int64_t>(),
      size["layers"].get<int64_t>(), size["context"].get<int64_t>(), size["batch"].get<int64_t>(),
      system["system"].get<std::string>(), format_count(system["parameters"].get<double>()),
      system["step_ms"].get<double>(), system["tokens_per_second"].get<double>(), of_dense);
}

}  // namespace ballast::cli
