// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/experiment_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast::record {
namespace {

using nlohmann::json;                 // read
using Json = nlohmann::ordered_json;  // written

constexpr std::string_view kFormat = "ballast-experiment";
constexpr int64_t kVersion = 2;  // 1: the cost model's rates stood with the systems
constexpr std::array kStatuses = {"planned", "measured", "swept", "trained"};

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// Whole numbers alone: one that is written 1e300 has no value as such.
int64_t count_of(const json& value) {
  if (!value.is_number_integer()) throw std::out_of_range("a count");
  return value.get<int64_t>();
}

std::optional<int64_t> optional_count(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(count_of(value));
}

template <typename T>
std::optional<T> optional_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

Json json_of(const SystemRecord& system) {
  Json out = {{"id", system.id},
              {"title", system.title},
              {"words", system.words},
              {"kind", system.kind},
              {"experts", or_null(system.experts)},
              {"knobs", system.knobs},
              {"parameters", system.parameters},
              {"active", system.active},
              {"flops_per_token", system.flops_per_token},
              {"tokens_per_step", system.tokens_per_step},
              {"step_seconds", or_null(system.step_seconds)},
              {"early_step_seconds", or_null(system.early_step_seconds)},
              {"step_parts", system.step_parts},
              {"steps", or_null(system.steps)},
              {"tokens", system.steps ? Json(*system.steps * system.tokens_per_step) : Json()},
              {"sweep", Json::array()},
              {"learning_rate", or_null(system.learning_rate)},
              {"runs", Json::array()},
              {"status", progression_name(system.status)}};
  for (const SweptRate& rate : system.sweep) {
    out["sweep"].push_back({{"learning_rate", rate.learning_rate},
                            {"steps", rate.steps},
                            {"loss", or_null(rate.loss)}});
  }
  for (const TrainedRun& run : system.runs)
    out["runs"].push_back({{"seed", run.seed}, {"run", run.run}});
  return out;
}

PanelRecord panel_of(const json& in) {
  PanelRecord panel{in.at("title"), in.at("systems")};
  if (const json plan = in.value("plan", json()); !plan.is_null()) {
    panel.plan = {count_of(plan.at("workers")), plan.at("device"), plan.at("network"),
                  plan.at("tokens_per_second")};
  }
  return panel;
}

// Records of old had one number of tokens for all systems, and measured steps once.
SystemRecord system_of(const json& in, int64_t tokens_per_step) {
  SystemRecord system;
  system.id = in.at("id");
  system.title = in.at("title");
  system.words = in.at("words");
  system.kind = in.at("kind");
  system.experts = optional_count(in.at("experts"));
  system.knobs = in.at("knobs");
  system.parameters = count_of(in.at("parameters"));
  system.active = count_of(in.at("active"));
  system.flops_per_token = in.at("flops_per_token");
  system.tokens_per_step = count_of(in.value("tokens_per_step", json(tokens_per_step)));
  system.step_seconds = optional_of<double>(in.at("step_seconds"));
  system.early_step_seconds = optional_of<double>(in.value("early_step_seconds", json()));
  system.step_parts = in.at("step_parts").get<std::map<std::string, double>>();
  system.steps = optional_count(in.at("steps"));
  int64_t tokens = 0;
  if (__builtin_mul_overflow(system.steps.value_or(0), system.tokens_per_step, &tokens))
    throw std::out_of_range("tokens");
  for (const json& rate : in.at("sweep")) {
    system.sweep.push_back({rate.at("learning_rate"), count_of(rate.at("steps")),
                            optional_of<double>(rate.at("loss"))});
  }
  system.learning_rate = optional_of<double>(in.at("learning_rate"));
  for (const json& run : in.at("runs"))
    system.runs.push_back({count_of(run.at("seed")), run.at("run")});
  const auto status = std::ranges::find(kStatuses, in.at("status").get<std::string>());
  if (status == kStatuses.end()) throw std::out_of_range("status");
  system.status = static_cast<Progression>(status - kStatuses.begin());
  return system;
}

Experiment experiment_of(const json& in) {
  Experiment out;
  out.name = in.at("name");
  out.title = in.at("title");
  out.budget_seconds = in.at("budget_seconds");
  out.training_seconds = optional_of<double>(in.at("training_seconds"));
  out.max_epochs = in.at("max_epochs");
  out.middle_rate = in.at("middle_learning_rate");
  out.workers = count_of(in.at("workers"));
  out.rates = count_of(in.at("rates"));
  out.seeds = count_of(in.at("seeds"));
  out.at_once = count_of(in.at("at_once"));
  out.tokens_per_step = count_of(in.at("tokens_per_step"));
  out.rates_from = in.value("rates_from", "");
  out.data = in.at("data");
  out.program_version = in.at("program_version");
  out.hardware = in.at("hardware").dump();
  std::set<std::string> ids;
  for (const json& system : in.at("systems")) {
    out.systems.push_back(system_of(system, out.tokens_per_step));
    ids.insert(out.systems.back().id);
  }
  for (const json& panel : in.at("panels")) {
    out.panels.push_back(panel_of(panel));
    for (const std::string& id : out.panels.back().systems) {
      if (!ids.contains(id)) throw std::out_of_range(id);
    }
  }
  return out;
}

// Adds "NAME: BEFORE -> AFTER" where they differ.
void compare(std::vector<std::string>& lines, const std::string& name, const std::string& before,
             const std::string& after) {
  if (before != after) lines.push_back(fmt::format("{}: {} -> {}", name, before, after));
}

void compare_knobs(std::vector<std::string>& lines, const SystemRecord& before,
                   const SystemRecord& after) {
  const auto value = [](const SystemRecord& system, const std::string& key) {
    const auto found = system.knobs.find(key);
    return found == system.knobs.end() ? "its default" : found->second;
  };
  std::set<std::string> keys;
  for (const SystemRecord* system : {&before, &after}) {
    for (const auto& [key, unused] : system->knobs) keys.insert(key);
  }
  for (const std::string& key : keys)
    compare(lines, fmt::format("{} of {}", key, after.id), value(before, key), value(after, key));
}

std::string ids_of(const Experiment& experiment) {
  std::vector<std::string> ids;
  for (const SystemRecord& system : experiment.systems) ids.push_back(system.id);
  return fmt::format("{}", fmt::join(ids, ", "));
}

}  // namespace

std::string_view progression_name(Progression status) {
  return kStatuses[static_cast<size_t>(status)];
}

Experiment load_experiment(const std::filesystem::path& file) {
  const json in = parse_json_or_discard(read_text(file));
  const bool is_ours = in.is_object() && in.value("format", json()) == kFormat &&
                       in.value("version", json()).is_number_integer();
  if (is_ours && in["version"] > kVersion) {
    fail("{} is of format version {}, and this ballast reads up to {}: use a newer ballast",
         file.string(), in["version"].get<int64_t>(), kVersion);
  }
  try {
    if (is_ours) return experiment_of(in);
  } catch (const nlohmann::json::exception&) {  // told below
  } catch (const std::out_of_range&) {
  }
  fail("{} is damaged or not the record of an experiment: restore it, or use another folder",
       file.string());
}

void save_experiment(const std::filesystem::path& file, const Experiment& experiment) {
  Json out = {{"format", kFormat},
              {"version", kVersion},
              {"name", experiment.name},
              {"title", experiment.title},
              {"budget_seconds", experiment.budget_seconds},
              {"training_seconds", or_null(experiment.training_seconds)},
              {"max_epochs", experiment.max_epochs},
              {"middle_learning_rate", experiment.middle_rate},
              {"workers", experiment.workers},
              {"rates", experiment.rates},
              {"seeds", experiment.seeds},
              {"at_once", experiment.at_once},
              {"tokens_per_step", experiment.tokens_per_step},
              {"rates_from", experiment.rates_from},
              {"data", experiment.data},
              {"program_version", experiment.program_version},
              {"hardware", parse_json(experiment.hardware)},
              {"panels", panels_json(experiment)},
              {"systems", Json::array()}};
  for (const SystemRecord& system : experiment.systems) out["systems"].push_back(json_of(system));
  write_text_atomically(file, out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json panels_json(const Experiment& experiment) {
  Json panels = Json::array();
  for (const PanelRecord& panel : experiment.panels) {
    panels.push_back({{"title", panel.title}, {"systems", panel.systems}, {"plan", nullptr}});
    if (!panel.plan) continue;
    panels.back()["plan"] = {{"workers", panel.plan->workers},
                             {"device", panel.plan->device},
                             {"network", panel.plan->network},
                             {"tokens_per_second", panel.plan->tokens_per_second}};
  }
  return panels;
}

std::vector<std::string> differences(const Experiment& stored, const Experiment& wanted) {
  std::vector<std::string> lines;
  compare(lines, "experiment", stored.name, wanted.name);
  compare(lines, "--budget", fmt::format("{}s", stored.budget_seconds),
          fmt::format("{}s", wanted.budget_seconds));
  compare(lines, "--max-epochs", fmt::format("{}", stored.max_epochs),
          fmt::format("{}", wanted.max_epochs));
  compare(lines, "--workers", std::to_string(stored.workers), std::to_string(wanted.workers));
  compare(lines, "--rates", std::to_string(stored.rates), std::to_string(wanted.rates));
  compare(lines, "--optimizer.learning_rate", fmt::format("{}", stored.middle_rate),
          fmt::format("{}", wanted.middle_rate));
  compare(lines, "--data", stored.data, wanted.data);
  if (wanted.seeds < stored.seeds)
    compare(lines, "--seeds", std::to_string(stored.seeds), std::to_string(wanted.seeds));
  compare(lines, "systems", ids_of(stored), ids_of(wanted));
  if (!lines.empty()) return lines;
  for (size_t i = 0; i < stored.systems.size(); ++i)
    compare_knobs(lines, stored.systems[i], wanted.systems[i]);
  return lines;
}

}  // namespace ballast::record
