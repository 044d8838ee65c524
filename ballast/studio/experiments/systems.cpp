// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/systems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "ballast/model/model_size.h"
#include "ballast/system/error.h"

namespace ballast::experiments {
namespace {

using config::Config;

double flops_of(const Config& config) { return model::model_size(config).flops_per_token; }

// The whole number in [1, most] whose config is closest by `distance`; the smaller of two.
int64_t closest(int64_t most, const std::function<double(int64_t)>& distance) {
  int64_t best = 1;
  double least = distance(1);
  for (int64_t number = 2; number <= most; ++number) {
    if (const double here = distance(number); here < least) {
      best = number;
      least = here;
    }
  }
  return best;
}

// Knobs that another router refuses go back to their defaults.
void set_router(config::ExpertsConfig& experts, const std::string& router) {
  const config::ExpertsConfig defaults;
  experts.router = router;
  if (!experts.traits().balanced) {
    experts.solver = defaults.solver;
    experts.test_routing = defaults.test_routing;
    experts.self_check = defaults.self_check;
    config::take_papers_frame(experts);
  }
  if (experts.experts_of_token() == 1) experts.second_expert = defaults.second_expert;
}

Config with_layers(Config config, const std::string& router, config::Placement placement,
                   int64_t count) {
  config::set_knob(config, "experts.count", std::to_string(count));
  set_router(config.experts, router);
  config.experts.placement = placement;
  config.experts.size = config::ExpertsConfig().size;
  config.experts.per_token = config::ExpertsConfig().per_token;
  config.experts.shared = config::ExpertsConfig().shared;
  config.experts.layers = 1;
  config.experts.sublayers = 0;
  return config;
}

}  // namespace

int64_t usual_groups(const Config& config, int64_t workers) {
  constexpr double kTokensOfGroup = 2048;
  const int64_t tokens = config.training.batch / config.training.micro_steps * config.model.context;
  const auto distance = [&](int64_t groups) {
    return std::abs(std::log(static_cast<double>(tokens / groups) / kTokensOfGroup));
  };
  int64_t best = 0;
  for (int64_t groups = workers; groups <= tokens; groups += workers) {
    if (tokens % groups == 0 && (best == 0 || distance(groups) < distance(best))) best = groups;
  }
  return best;
}

Config dense_system(const Config& blocks, int64_t layers) {
  Config config = blocks;
  config.experts = config::ExpertsConfig();
  config.model.layers = layers;
  return config;
}

Config dense_of_equal_flops(const Config& blocks, const Config& other) {
  const double wanted = flops_of(other);
  const double block = flops_of(dense_system(blocks, 2)) - flops_of(dense_system(blocks, 1));
  const auto most = static_cast<int64_t>(wanted / block) + 1;
  return dense_system(blocks, closest(most, [&](int64_t layers) {
                        return std::abs(flops_of(dense_system(blocks, layers)) - wanted);
                      }));
}

Config larger_dense(const Config& dense, int64_t factor) {
  Config config = dense_system(dense, dense.model.layers);
  const int64_t head = config.model.width / config.model.heads;
  const auto grown =
      std::sqrt(static_cast<double>(factor)) * static_cast<double>(dense.model.heads);
  const int64_t parts = std::max<int64_t>(dense.model.heads / factor + 1,
                                          std::llround(grown / static_cast<double>(factor)));
  config.model.heads = parts * factor;
  config.model.width = config.model.heads * head;
  config.model.hidden = dense.model.hidden * config.model.width / dense.model.width;
  const auto parameters = [](const Config& c) {
    return static_cast<double>(model::model_size(c).total);
  };
  const double wanted = static_cast<double>(factor) * parameters(dense);
  config.model.layers = closest(factor * dense.model.layers, [&](int64_t layers) {
    return std::abs(parameters(dense_system(config, layers)) - wanted);
  });
  return config;
}

int64_t sublayers_of_each(int64_t all, int64_t layers) {
  return std::max<int64_t>(1, all / layers);
}

Config base_system(const Config& blocks, int64_t count, int64_t layers, int64_t sublayers_each) {
  Config config = with_layers(blocks, "base", config::Placement::kSpread, count);
  config.experts.layers = layers;
  config.experts.sublayers = sublayers_each;
  return config;
}

Config base_top_system(const Config& blocks, int64_t count, int64_t sublayers) {
  Config config = with_layers(blocks, "base", config::Placement::kTop, count);
  config.experts.sublayers = sublayers;
  return config;
}

Config gated_system(const Config& blocks, const std::string& router, int64_t count) {
  Config config = with_layers(blocks, router, config::Placement::kReplace, count);
  config.experts.layers = std::max<int64_t>(1, config.model.layers / 2);
  return config;
}

Config with_papers_router(Config base) {
  config::take_papers_frame(base.experts);
  base.experts.solver = config::TrainingSolver::kAuction;
  base.experts.test_routing = config::TestRouting::kGreedy;
  return base;
}

Config with_two_of_twice_as_many(Config base) {
  base.experts.hidden = base.experts.width_of_expert(base.model) / 2;
  base.experts.count *= 2;
  base.experts.per_token = 2;
  return base;
}

Config with_shared_half(Config base) {
  base.experts.hidden = base.experts.width_of_expert(base.model) / 2;
  base.experts.shared = 1;  // as wide as one of them
  return base;
}

Config deep_gated_system(const Config& blocks, const std::string& router, int64_t count,
                         int64_t sublayers) {
  Config config = with_layers(blocks, router, config::Placement::kSpread, count);
  config.experts.sublayers = sublayers;
  return config;
}

Config resized_base_system(const Config& blocks, int64_t count, int64_t sublayers,
                           config::ExpertSize size) {
  const bool is_small = size == config::ExpertSize::kSmall;
  const int64_t standard = blocks.model.layers;
  const int64_t layers = is_small ? (7 * standard + 5) / 6 : std::max<int64_t>(1, 5 * standard / 8);
  const double wanted = flops_of(base_system(blocks, count, 1, sublayers));
  Config config = dense_system(blocks, layers);
  config.experts = base_system(blocks, count, 1, 1).experts;
  const auto distance = [&](int64_t number) {
    config.experts.sublayers = number;
    return std::abs(flops_of(config) - wanted);
  };
  config.experts.sublayers = closest(sublayers + 2 * standard, distance);
  config.experts.size = size;
  return config;
}

namespace {

struct NamedSystem {
  const char* name;
  std::function<Config(const Config&, const SystemExperts&, int64_t workers)> configure;
};

Config divided_base(const Config& dense, const SystemExperts& experts, int64_t layers) {
  if (experts.sublayers < layers)
    fail("--experts: {} BASE layers want {} sublayers at least, got {}", layers, layers,
         experts.sublayers);
  return base_system(dense, experts.count, layers, sublayers_of_each(experts.sublayers, layers));
}

Config divided_dense(const Config& dense, int64_t workers) {
  if (workers == 1) fail("--systems: model_parallel wants several workers (--workers)");
  Config config = dense;
  config.training.model_parallel = workers;
  return config;
}

const std::vector<NamedSystem>& named_systems() {
  using Experts = const SystemExperts&;
  static const std::vector<NamedSystem> systems{
      {"dense", [](const Config& c, Experts, int64_t) { return c; }},
      {"model_parallel",
       [](const Config& c, Experts, int64_t workers) { return divided_dense(c, workers); }},
      {"base", [](const Config& c, Experts e, int64_t) { return divided_base(c, e, 1); }},
      {"base_x2", [](const Config& c, Experts e, int64_t) { return divided_base(c, e, 2); }},
      {"base_x3", [](const Config& c, Experts e, int64_t) { return divided_base(c, e, 3); }},
      {"sparsely_gated", [](const Config& c, Experts e,
                            int64_t) { return gated_system(c, "sparsely_gated", e.count); }},
      {"switch",
       [](const Config& c, Experts e, int64_t) { return gated_system(c, "switch", e.count); }}};
  return systems;
}

const NamedSystem& find_system(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedSystem& system : named_systems()) {
    if (system.name == name) return system;
    names.emplace_back(system.name);
  }
  fail("--systems: there is no \"{}\"; want all, or some of {}", name, fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> parse_systems(const std::string& text, int64_t workers) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const NamedSystem& system : named_systems()) {
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
  Config blocks = dense;
  blocks.experts.groups = experts.groups > 0 ? experts.groups : workers;
  Config config = find_system(name).configure(blocks, experts, workers);
  config::check_config(config);
  config::check_workers(config, workers);
  return config;
}

}  // namespace ballast::experiments
