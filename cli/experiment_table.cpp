// SPDX-License-Identifier: Apache-2.0
#include "cli/experiment_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/studio/experiments/run_outcome.h"
#include "ballast/studio/experiments/stages.h"
#include "ballast/system/progress.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

using Row = std::vector<std::string>;

// Columns as wide as they need; the first is text, the others are numbers.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
}

Json perplexity(double loss) { return std::isfinite(loss) ? Json(std::exp(loss)) : Json(); }

Json perplexity(const std::optional<experiments::RunOutcome::Routed>& routed) {
  return perplexity(routed ? routed->loss : record::kUnknown);
}

// Of validations before the last; null where there is one way to route.
Json routing_on_the_way(const record::SystemRecord& system) {
  if (system.kind != "base") return {};
  const auto given = system.knobs.find("experts.test_routing");
  return given == system.knobs.end() ? config::name_of(config::ExpertsConfig().tested_routing())
                                     : given->second;
}

// What each seed gave. Of runs that shared the hardware the clock tells nothing.
Json seeds_of(const record::SystemRecord& system, const record::Experiment& experiment,
              const std::filesystem::path& folder) {
  Json seeds = Json::array();
  for (const record::TrainedRun& run : system.runs) {
    const experiments::RunOutcome outcome = experiments::read_outcome(folder / run.run);
    const bool has_experts = system.experts && outcome.greedy;
    seeds.push_back(
        {{"seed", run.seed},
         {"greedy_perplexity", perplexity(outcome.greedy)},
         {"priced_perplexity", system.kind == "base" ? perplexity(outcome.priced) : Json()},
         {"busiest", has_experts ? Json(outcome.greedy->busiest) : Json()},
         {"seconds", experiment.at_once == 1 ? Json(outcome.seconds) : Json()}});
  }
  return seeds;
}

std::vector<double> values_of(const Json& seeds, const char* key) {
  std::vector<double> values;
  for (const Json& seed : seeds) {
    if (!seed[key].is_null()) values.push_back(seed[key].get<double>());
  }
  return values;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Json result_of(const record::SystemRecord& system, const Json& seeds) {
  const auto mean = [&](const char* key) {
    const std::vector<double> values = values_of(seeds, key);
    return values.empty() ? Json() : Json(mean_of(values));
  };
  const Json greedy = mean("greedy_perplexity"), priced = mean("priced_perplexity");
  const bool is_priced = !priced.is_null() && (greedy.is_null() || priced < greedy);
  return {
      {"id", system.id},
      {"title", system.title},
      {"experts", system.experts ? Json(*system.experts) : Json()},
      {"words", system.words},
      {"parameters", system.parameters},
      {"active", system.active},
      {"flops_per_token", system.flops_per_token},
      {"learning_rate", system.learning_rate.value()},
      {"steps", system.steps.value()},
      {"tokens", system.steps.value() * system.tokens_per_step},
      {"tokens_per_second",
       static_cast<double>(system.tokens_per_step) / system.step_seconds.value()},
      {"step_seconds", system.step_seconds.value()},
      {"early_step_seconds", system.early_step_seconds ? Json(*system.early_step_seconds) : Json()},
      {"seconds", mean("seconds")},
      {"perplexity", is_priced ? priced : greedy},
      {"routing", system.kind == "base" ? Json(is_priced ? "priced" : "greedy") : Json()},
      {"greedy_perplexity", greedy},
      {"priced_perplexity", priced},
      {"perplexity_at_equal_tokens", nullptr},
      {"routing_at_equal_tokens", routing_on_the_way(system)},
      {"busiest", mean("busiest")},
      {"seeds", seeds}};
}

std::string number(const Json& value, int digits) {
  return value.is_null() ? "" : fmt::format("{:.{}f}", value.get<double>(), digits);
}

// "23.410 priced"; of systems that route one way the number alone.
std::string routed_number(const Json& value, const Json& routing) {
  const std::string text = number(value, 3);
  return text.empty() || routing.is_null() ? text
                                           : fmt::format("{} {}", text, routing.get<std::string>());
}

// "6.24", and "9.40 > 6.24" where steps became faster or slower after the start.
std::string step_times(const Json& system) {
  const std::string later = number(Json(1e3 * system["step_seconds"].get<double>()), 2);
  if (system["early_step_seconds"].is_null()) return later;
  return number(Json(1e3 * system["early_step_seconds"].get<double>()), 2) + " > " + later;
}

// "247.196 +- 3.2", or nothing with one seed.
std::string spread(const std::vector<double>& values) {
  if (values.size() < 2) return "";
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return fmt::format("{:.3f} +- {:.3f}", mean,
                     std::sqrt(squares / static_cast<double>(values.size() - 1)));
}

std::string spread(const Json& system) {
  const std::string greedy = spread(values_of(system["seeds"], "greedy_perplexity")),
                    priced = spread(values_of(system["seeds"], "priced_perplexity"));
  if (greedy.empty()) return "";
  return fmt::format("{}: perplexity {}, mean and deviation of {} seeds\n",
                     system["id"].get<std::string>(),
                     priced.empty() ? greedy : fmt::format("{} greedy, {} priced", greedy, priced),
                     system["seeds"].size());
}

// "8 experts, planned tokens/s on 8 v100 over infiniband: base-x1-e8 1.2M, dense 1.4M".
std::string panel_line(const record::PanelRecord& panel) {
  std::vector<std::string> words;
  for (const std::string& id : panel.systems) {
    if (!panel.plan) {
      words.push_back(id);
      continue;
    }
    const auto rate = panel.plan->tokens_per_second.find(id);
    const bool is_known = rate != panel.plan->tokens_per_second.end();
    words.push_back(fmt::format("{} {}", id, is_known ? format_count(rate->second) : "-"));
  }
  const std::string where =
      !panel.plan ? ""
                  : fmt::format(", planned tokens/s on {} {} over {}", panel.plan->workers,
                                panel.plan->device, panel.plan->network);
  return fmt::format("{}{}: {}\n", panel.title, where, fmt::join(words, ", "));
}

}  // namespace

std::string perplexity_in_words(const record::SystemRecord& system,
                                const record::Experiment& experiment,
                                const std::filesystem::path& folder) {
  const Json seeds = seeds_of(system, experiment, folder), result = result_of(system, seeds);
  return routed_number(result["perplexity"], result["routing"]) +
         (seeds.size() > 1 ? fmt::format(" (mean of {} seeds)", seeds.size()) : "");
}

std::string planned_table(const record::Experiment& experiment) {
  std::vector<Row> rows = {{"system", "id", "experts", "parameters", "active", "FLOPs/token"}};
  for (const record::SystemRecord& system : experiment.systems) {
    const auto count = [](auto value) { return format_count(static_cast<double>(value)); };
    rows.push_back({system.title, system.id, system.experts ? std::to_string(*system.experts) : "",
                    count(system.parameters), count(system.active), count(system.flops_per_token)});
  }
  std::string text = aligned(rows);
  for (const record::PanelRecord& panel : experiment.panels) text += panel_line(panel);
  return text + fmt::format("{} systems, {} of training each, {}; about {} in all\n",
                            experiment.systems.size(), format_duration(experiment.budget_seconds),
                            !experiment.rates_from.empty()
                                ? "with the learning rates of " + experiment.rates_from
                            : experiment.rates > 1
                                ? fmt::format("after sweeps of {} learning rates", experiment.rates)
                                : fmt::format("at learning rate {:.3g}", experiment.middle_rate),
                            format_duration(experiments::seconds_left(experiment)));
}

Json planned_json(const record::Experiment& experiment) {
  Json out = {{"name", experiment.name},
              {"title", experiment.title},
              {"panels", record::panels_json(experiment)},
              {"systems", Json::array()},
              {"seconds", experiments::seconds_left(experiment)}};
  for (const record::SystemRecord& system : experiment.systems) {
    out["systems"].push_back({{"id", system.id},
                              {"title", system.title},
                              {"words", system.words},
                              {"experts", system.experts ? Json(*system.experts) : Json()},
                              {"parameters", system.parameters},
                              {"active", system.active},
                              {"flops_per_token", system.flops_per_token}});
  }
  return out;
}

Json results_json(const record::Experiment& experiment, const std::filesystem::path& folder) {
  std::vector<std::pair<const record::SystemRecord*, experiments::RunOutcome>> trained;
  int64_t equal_tokens = 0;
  for (const record::SystemRecord& system : experiment.systems) {
    if (system.runs.empty()) continue;
    trained.emplace_back(&system, experiments::read_outcome(folder / system.runs.front().run));
    const int64_t tokens = trained.back().second.tokens;
    equal_tokens = equal_tokens == 0 ? tokens : std::min(equal_tokens, tokens);
  }
  Json systems = Json::array();
  for (const auto& [system, first] : trained) {
    systems.push_back(result_of(*system, seeds_of(*system, experiment, folder)));
    systems.back()["perplexity_at_equal_tokens"] =
        perplexity(record::loss_at(first.validations, static_cast<double>(equal_tokens)));
  }
  return {{"equal_tokens", equal_tokens},
          {"panels", record::panels_json(experiment)},
          {"systems", systems}};
}

std::string results_table(const Json& results) {
  const double equal = results["equal_tokens"].get<double>();
  std::vector<Row> rows = {{"system", "experts", "perplexity", "greedy", "priced",
                            fmt::format("at {} tokens", format_count(equal)), "tokens/s",
                            "ms a step, first > later", "trained", "busiest expert, greedy"}};
  std::string seeds;
  for (const Json& system : results["systems"]) {
    rows.push_back(
        {system["title"].get<std::string>(),
         system["experts"].is_null() ? "" : std::to_string(system["experts"].get<int64_t>()),
         routed_number(system["perplexity"], system["routing"]),
         system["routing"].is_null() ? "" : number(system["greedy_perplexity"], 3),
         number(system["priced_perplexity"], 3),
         routed_number(system["perplexity_at_equal_tokens"], system["routing_at_equal_tokens"]),
         format_count(system["tokens_per_second"].get<double>()), step_times(system),
         system["seconds"].is_null() ? "" : format_duration(system["seconds"].get<double>()),
         number(system["busiest"], 2)});
    seeds += spread(system);
  }
  return aligned(rows) + seeds;
}

}  // namespace ballast::cli
