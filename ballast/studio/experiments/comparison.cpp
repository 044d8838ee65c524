// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <variant>

#include "ballast/config/knobs.h"
#include "ballast/config/system_words.h"
#include "ballast/model/model_size.h"
#include "ballast/studio/experiments/cluster_estimate.h"
#include "ballast/studio/experiments/systems.h"
#include "ballast/system/error.h"

namespace ballast::experiments {
namespace {

using config::Config;
using Systems = std::vector<ComparedSystem>;

constexpr int64_t kSublayers = 3, kPlacementSublayers = 6, kPlacementBlocks = 6;

// What the systems of one panel are made of.
struct Setting {
  Config blocks;
  int64_t experts = 8, sublayers = 0, workers = 1;

  int64_t layers() const { return blocks.model.layers; }
  int64_t of_layer(int64_t layers) const { return sublayers_of_each(sublayers, layers); }
  std::string with_experts(const std::string& name) const {
    return fmt::format("{}-e{}", name, experts);
  }
};

ComparedSystem base_xn(const Setting& s, int64_t n) {
  return {s.with_experts(fmt::format("base-x{}", n)), fmt::format("BASE x{}", n),
          base_system(s.blocks, s.experts, n, s.of_layer(n))};
}

Config in_place(const Setting& s) { return gated_system(s.blocks, "base", s.experts); }

ComparedSystem base_in_place(const Setting& s) {
  return {s.with_experts("base-in-place"), "BASE in place", in_place(s)};
}

// What their papers have, but for the place of BASE's experts.
Systems papers_routers_in_place(const Setting& s) {
  return {{s.with_experts("base-paper"), "BASE in place, the paper's router",
           with_papers_router(in_place(s))},
          {s.with_experts("sparsely-gated"), "Sparsely Gated MoE",
           gated_system(s.blocks, "sparsely_gated", s.experts)},
          {s.with_experts("switch"), "Switch", gated_system(s.blocks, "switch", s.experts)}};
}

void append(Systems& systems, Systems more) {
  for (ComparedSystem& system : more) systems.push_back(std::move(system));
}

ComparedSystem dense(const Setting& s, const Config& config, const std::string& title) {
  const int64_t layers = config.model.layers;
  return {layers == s.layers() ? "dense" : fmt::format("dense-l{}", layers), title, config};
}

// The paper's larger dense models, which it divides, and whose replicas get the batch of one
// worker: all of them a part of the others' batch. Here they are divided where there are workers
// for that; elsewhere nothing is parallel about them, and their title says what they are.
ComparedSystem model_parallel(const Setting& s, const Config& dense, int64_t shards) {
  Config config = larger_dense(dense, shards);
  const bool is_divided = s.workers % shards == 0;
  if (is_divided) config.training.model_parallel = shards;
  config::TrainingConfig& training = config.training;
  training.batch = std::max<int64_t>(1, training.batch / shards);
  training.micro_steps = std::gcd(training.micro_steps, training.batch);
  return {fmt::format("dense-x{}", shards),
          is_divided ? fmt::format("Model parallel x{}", shards)
                     : fmt::format("Dense, {} times as large", shards),
          config, shards};
}

// 28 blocks in the paper, where BASE has 24.
Config data_parallel_of(const Setting& s) {
  return dense_system(s.blocks, (7 * s.layers() + 5) / 6);
}

Systems dense_systems(const Setting& s) {
  const Config data_parallel = data_parallel_of(s);
  Systems systems = {base_xn(s, 1), dense(s, data_parallel, "Data parallel"),
                     model_parallel(s, data_parallel, 2)};
  if (s.experts >= 128) systems.push_back(model_parallel(s, data_parallel, 4));
  return systems;
}

Systems sparse_systems(const Setting& s) {
  Systems systems = {base_xn(s, 3), base_in_place(s)};
  append(systems, papers_routers_in_place(s));
  return systems;
}

Systems expert_sizes(const Setting& s) {
  const auto resized = [&](config::ExpertSize size) {
    return resized_base_system(s.blocks, s.experts, s.sublayers, size);
  };
  return {
      {s.with_experts("base-small"), "BASE x1, small experts", resized(config::ExpertSize::kSmall)},
      base_xn(s, 1),
      {s.with_experts("base-large"), "BASE x1, large experts",
       resized(config::ExpertSize::kLarge)}};
}

Systems placements(const Setting& s) {
  return {
      {s.with_experts("base-top"), "BASE Top", base_top_system(s.blocks, s.experts, s.sublayers)},
      base_xn(s, 1),
      base_xn(s, 2),
      base_xn(s, 3),
      base_xn(s, 5)};
}

Systems routings(const Setting& s) {
  const auto deep = [&](const std::string& router) {
    return deep_gated_system(s.blocks, router, s.experts, s.sublayers);
  };
  const ComparedSystem base = base_xn(s, 1);
  return {
      base,
      {s.with_experts("base-x1-paper"), "BASE x1, the paper's router",
       with_papers_router(base.config)},
      {s.with_experts("sparsely-gated-deep"), "Sparsely Gated MoE at L/2", deep("sparsely_gated")},
      {s.with_experts("switch-deep"), "Switch at L/2", deep("switch")}};
}

Systems overview(const Setting& s) {
  const ComparedSystem base = base_xn(s, 1);
  Systems systems = {dense(s, dense_system(s.blocks, s.layers()), "Dense"),
                     dense(s, dense_of_equal_flops(s.blocks, base.config), "Dense, equal FLOPs"),
                     base,
                     base_xn(s, 2),
                     base_xn(s, 3),
                     base_in_place(s)};
  append(systems, papers_routers_in_place(s));
  return systems;
}

// What of BASE's router and experts makes the difference, all in one place and of equal FLOPs but
// for Sparsely Gated, whose tokens have two experts, and data parallel, which has more blocks.
Systems frames(const Setting& s) {
  const Config base = in_place(s), top2 = with_two_of_twice_as_many(base);
  Config near = base;
  near.experts.look_ahead = false;
  Systems systems = {dense(s, dense_of_equal_flops(s.blocks, base), "Dense, equal FLOPs"),
                     dense(s, data_parallel_of(s), "Data parallel")};
  append(systems, papers_routers_in_place(s));
  append(systems, {{s.with_experts("base-in-place-near"), "BASE in place, no look-ahead", near},
                   base_in_place(s),
                   {fmt::format("base-top2-e{}", top2.experts.count),
                    "BASE in place, two of twice as many half experts", top2},
                   {s.with_experts("base-shared"), "BASE in place, half expert and shared half",
                    with_shared_half(base)}});
  return systems;
}

struct Figure {
  const char *name, *title;
  bool has_three_panels;  // 8, 32 and 128 experts
  Systems (*systems)(const Setting&);
};

constexpr Figure kFigures[] = {
    {"dense", "BASE layers beside dense models", true, dense_systems},
    {"sparse", "BASE layers beside other sparse layers", false, sparse_systems},
    {"expert-size", "Sizes of experts", false, expert_sizes},
    {"placement", "Places and numbers of BASE layers", false, placements},
    {"routing", "Routing, with the same experts", false, routings},
    {"overview", "All systems", true, overview},
    {"frames", "Frames of the router", false, frames}};

std::vector<Figure> figures_of(const std::string& name) {
  std::vector<Figure> figures;
  for (const Figure& figure : kFigures) {
    if (name == "all" || name == figure.name) figures.push_back(figure);
  }
  if (figures.empty()) {
    fail("there is no experiment \"{}\"; want one of {}", name,
         fmt::join(comparison_names(), ", "));
  }
  return figures;
}

Setting setting_of(const Figure& figure, const ComparisonRequest& request, int64_t experts) {
  Setting setting{request.blocks, experts, request.sublayers, request.workers};
  if (setting.blocks.experts.groups == 0)
    setting.blocks.experts.groups = usual_groups(setting.blocks, request.workers);
  const bool counts_layers = figure.systems == placements;
  if (counts_layers)
    setting.blocks.model.layers = std::max(kPlacementBlocks, request.blocks.model.layers);
  if (setting.sublayers == 0) setting.sublayers = counts_layers ? kPlacementSublayers : kSublayers;
  return setting;
}

// What sets models of one figure apart from those of the same name in others.
void tell_apart(Systems& systems, const Setting& setting, const ComparisonRequest& request) {
  const int64_t usual = request.sublayers > 0 ? request.sublayers : kSublayers;
  if (setting.layers() == request.blocks.model.layers && setting.sublayers == usual) return;
  const std::string tail = fmt::format("-e{}", setting.experts);
  for (ComparedSystem& system : systems) {
    const size_t at = system.id.rfind(tail);
    system.id.insert(std::min(at, system.id.size()),
                     fmt::format("-l{}-s{}", setting.layers(), setting.sublayers));
  }
}

bool is_wanted(const std::vector<std::string>& only, const std::string& id) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& name) {
           return id == name ||
                  (id.starts_with(name + "-e") &&
                   id.find_first_not_of("0123456789", name.size() + 2) == std::string::npos);
         });
}

void check(const Systems& systems, int64_t workers) {
  for (const ComparedSystem& system : systems) {
    try {
      config::check_config(system.config);
      config::check_workers(system.config, workers);
    } catch (const UserError& error) {
      fail("{}: {}", system.title, error.what());
    }
  }
}

void check_wanted(const std::vector<std::string>& only, const std::set<std::string>& ids) {
  for (const std::string& name : only) {
    if (std::ranges::none_of(ids, [&](const std::string& id) { return is_wanted({name}, id); }))
      fail("--systems: there is no \"{}\"; want some of {}", name, fmt::join(ids, ", "));
  }
}

std::vector<const ComparedSystem*> systems_of(const PlannedComparison& comparison,
                                              const record::PanelRecord& panel) {
  std::vector<const ComparedSystem*> systems;
  for (const ComparedSystem& system : comparison.systems) {
    if (std::ranges::find(panel.systems, system.id) != panel.systems.end())
      systems.push_back(&system);
  }
  return systems;
}

}  // namespace

std::vector<std::string> comparison_names() {
  std::vector<std::string> names;
  for (const Figure& figure : kFigures) names.emplace_back(figure.name);
  names.emplace_back("all");
  return names;
}

PlannedComparison describe_comparison(const ComparisonRequest& request) {
  const std::vector<Figure> figures = figures_of(request.name);
  PlannedComparison out;
  out.title = figures.size() == 1 ? figures.front().title : "All comparisons";
  std::set<std::string> all, taken;
  std::vector<int64_t> experts_of_panel;
  for (const Figure& figure : figures) {
    std::vector<int64_t> counts = request.experts;
    if (counts.empty())
      counts = figure.has_three_panels ? std::vector<int64_t>{8, 32, 128}
                                       : std::vector{request.usual_experts};
    for (const int64_t experts : counts) {
      const Setting setting = setting_of(figure, request, experts);
      Systems systems = figure.systems(setting);
      tell_apart(systems, setting, request);
      record::PanelRecord panel{fmt::format("{} experts", experts), {}};
      if (figures.size() > 1) panel.title = fmt::format("{}, {}", figure.title, panel.title);
      for (ComparedSystem& system : systems) {
        all.insert(system.id);
        if (!is_wanted(request.only, system.id)) continue;
        panel.systems.push_back(system.id);
        if (taken.insert(system.id).second) out.systems.push_back(std::move(system));
      }
      if (panel.systems.empty()) continue;
      out.panels.push_back(std::move(panel));
      experts_of_panel.push_back(experts);
    }
  }
  check_wanted(request.only, all);
  check(out.systems, request.workers);
  for (size_t i = 0; i < out.panels.size(); ++i)
    out.panels[i].plan = estimate_on_cluster(systems_of(out, out.panels[i]), experts_of_panel[i]);
  return out;
}

bool is_decided_for_each_run(const std::string& knob) {
  static const std::set<std::string> knobs = {"training.steps",
                                              "training.seed",
                                              "training.log_every",
                                              "training.validate_every",
                                              "training.validate_batches",
                                              "training.last_validate_batches",
                                              "training.max_time",
                                              "training.sample_every",
                                              "training.sample_tokens",
                                              "optimizer.learning_rate",
                                              "optimizer.warmup_steps",
                                              "checkpoint.every",
                                              "checkpoint.keep_last"};
  return knobs.contains(knob);
}

namespace {

// As set_knob reads it back.
std::string text_of(const config::Knob& knob, const std::string& shown) {
  const auto* const* list = std::get_if<std::vector<std::string>*>(&knob.target);
  return list == nullptr ? shown : fmt::format("{}", fmt::join(**list, ","));
}

std::map<std::string, std::string> knobs_to_give(const Config& config) {
  Config copy = config;
  const std::vector<config::Knob> all = config::knobs(copy);
  const auto values = config::knob_values(config), defaults = config::knob_values(Config());
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [name, value] = values[i];
    if (value != defaults[i].second && !is_decided_for_each_run(name))
      given[name] = text_of(all[i], value);
  }
  return given;
}

}  // namespace

std::vector<record::SystemRecord> records_of(const PlannedComparison& comparison) {
  std::vector<record::SystemRecord> records;
  for (const ComparedSystem& system : comparison.systems) {
    const model::ModelSize size = model::model_size(system.config);
    record::SystemRecord record;
    record.id = system.id;
    record.title = system.title;
    record.words = config::system_in_words(system.config);
    const bool is_sparse = system.config.experts.layers > 0;
    if (is_sparse) record.words += "; " + config::frame_in_words(system.config.experts);
    record.kind = is_sparse ? system.config.experts.router : "dense";
    if (is_sparse) record.experts = system.config.experts.count;
    record.knobs = knobs_to_give(system.config);
    record.parameters = size.total;
    record.active = size.active;
    record.flops_per_token = size.flops_per_token;
    record.tokens_per_step = system.config.training.batch * system.config.model.context;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace ballast::experiments
