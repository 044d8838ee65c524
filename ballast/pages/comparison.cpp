// SPDX-License-Identifier: Apache-2.0
#include "ballast/pages/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/config/system_words.h"
#include "ballast/pages/json_fields.h"
#include "ballast/report/run_directory.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/system/progress.h"

namespace ballast {
namespace {

using nlohmann::json;

json read_experiment_file(const fs::path& path) {
  json file = parse_json_or_discard(read_text(path));
  if (text_in(file, "format") != "ballast-experiment")
    fail("{} is damaged or no record of an experiment", path.string());
  if (count_in(file, "version") > 2)
    fail("{} is of version {}, written by a later program; this one reads up to 2", path.string(),
         count_in(file, "version"));
  return file;
}

std::string title_of(const Config& config) {
  const std::string words = system_in_words(config);
  if (config.experts.layers == 0) return words;
  return fmt::format("{}, {} experts", words, config.experts.count);
}

// A path's last name, also of one that ends in a slash or is ".".
std::string folder_name(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(path);
  return whole.filename().empty() ? whole.string() : whole.filename().string();
}

// The notes of all runs; one that several runs share is there once.
void add_notes_of_runs(Comparison& comparison) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;  // and who has them
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      for (const std::string& note : run.notes) {
        auto place = std::ranges::find(notes, note, &decltype(notes)::value_type::first);
        if (place == notes.end()) place = notes.insert(notes.end(), {note, {}});
        place->second.push_back(folder_name(run.path));
      }
    }
  }
  for (const auto& [note, runs] : notes)
    comparison.notes.push_back(fmt::format("{}: {}", fmt::join(runs, ", "), note));
}

System system_of_run(const fs::path& folder, const CountModel& count_model) {
  System system;
  RunRecord run = read_run(folder);
  system.id = folder_name(folder);
  system.title = system.words = system.id;
  if (run.config) {
    const ExpertsConfig& experts = run.config->experts;
    system.title = system.words = title_of(*run.config);
    system.kind = experts.layers == 0 ? "dense" : experts.router;
    system.experts = experts.layers == 0 ? 0 : experts.count;
    system.learning_rate = run.config->optimizer.learning_rate;
    if (run.config->model.vocabulary > 0) {
      const ModelCounts counts = count_model(*run.config);
      system.parameters = counts.parameters;
      system.active = counts.active;
      system.flops_per_token = counts.flops_per_token;
    }
  }
  system.status = run.steps.empty() ? "planned" : "trained";
  system.runs.push_back(std::move(run));
  return system;
}

PlannedRates planned_rates(const json& plan) {
  if (!plan.is_object()) return {};
  return {fmt::format("{} x {}, {}", count_in(plan, "workers"), text_in(plan, "device"),
                      text_in(plan, "network")),
          named_numbers_in(plan, "tokens_per_second")};
}

System system_of_record(const json& record) {
  System system;
  system.id = text_in(record, "id");
  system.title = text_in(record, "title");
  system.words = text_in(record, "words");
  if (system.title.empty()) system.title = system.words.empty() ? system.id : system.words;
  system.kind = text_in(record, "kind");
  system.experts = count_in(record, "experts");
  system.parameters = number_in(record, "parameters");
  system.active = number_in(record, "active");
  system.flops_per_token = number_in(record, "flops_per_token");
  system.learning_rate = number_in(record, "learning_rate");
  system.status = text_in(record, "status");
  for (const json& point : list_in(record, "sweep"))
    system.sweep.push_back(
        {number_in(point, "learning_rate"), number_in(point, "steps"), number_in(point, "loss")});
  if (const json& knobs = field_in(record, "knobs"); knobs.is_object()) {
    for (const auto& [name, value] : knobs.items())
      system.knobs.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return system;
}

// Of runs that shared their hardware with others the clock tells nothing: a step took what it took
// when it was measured alone, by part too where that is known.
void retime(RunRecord& run, const StepAlone& alone) {
  const double step_seconds = alone.seconds;
  double before = 0;
  for (StepRecord& step : run.steps) {
    step.seconds = static_cast<double>(step.step) * step_seconds;
    step.tokens_per_second = (step.tokens - before) / step_seconds;
    before = step.tokens;
    if (!step.parts.empty()) step.parts = alone.parts;
    for (LayerStep& layer : step.layers) layer.assign_seconds = layer.exchange_seconds = kUnknown;
  }
  for (ValidationPoint& point : run.validations)
    point.seconds = static_cast<double>(point.step) * step_seconds;
}

// The runs that are there: of an experiment that goes on, later ones are not.
void add_runs(System& system, const json& record, const fs::path& folder) {
  for (const json& one : list_in(record, "runs")) {
    const fs::path path = folder / text_in(one, "run");
    if (RunDirectory::is_run(path)) system.runs.push_back(read_run(path));
  }
}

void add_facts(Comparison& comparison, const json& file) {
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty()) comparison.facts.push_back(fmt::format("{}: {}", name, value));
  };
  if (const double budget = number_in(file, "budget_seconds"); budget > 0)
    fact("training time of each system", format_duration(budget));
  if (const int64_t workers = count_in(file, "workers"); workers > 0)
    fact("workers", fmt::format("{}", workers));
  if (const int64_t at_once = count_in(file, "at_once"); at_once > 1)
    fact("trained side by side", fmt::format("{}; times are steps times the time of a step, "
                                             "measured alone before",
                                             at_once));
  fact("data", text_in(file, "data"));
  fact("machine", machine_in_words(field_in(file, "hardware")));
  fact("program", text_in(file, "program_version"));
}

void add_experiment(Comparison& comparison, const fs::path& folder) {
  const json file = read_experiment_file(folder / "experiment.json");
  std::map<std::string, size_t> places;
  for (const json& record : list_in(file, "systems")) {
    System system = system_of_record(record);
    add_runs(system, record, folder);
    const double step_seconds = number_in(record, "step_seconds");
    if (count_in(file, "at_once") > 1 && step_seconds > 0) {
      system.alone = {step_seconds, named_numbers_in(record, "step_parts")};
      for (RunRecord& run : system.runs) retime(run, *system.alone);
    }
    if (!system.is_trained())
      comparison.notes.push_back(fmt::format("{}: {} so far, not trained", system.id,
                                             system.status.empty() ? "planned" : system.status));

    places[system.id] = comparison.systems.size();
    comparison.systems.push_back(std::move(system));
  }
  std::set<size_t> shown;
  for (const json& record : list_in(file, "panels")) {
    Panel panel = {text_in(record, "title"), {}, planned_rates(field_in(record, "plan"))};
    for (const json& id : list_in(record, "systems")) {
      const auto place = places.find(id.is_string() ? id.get<std::string>() : "");
      if (place != places.end()) panel.systems.push_back(place->second);
    }
    shown.insert(panel.systems.begin(), panel.systems.end());
    if (!panel.systems.empty()) comparison.panels.push_back(std::move(panel));
  }
  Panel others;
  for (const auto& [id, place] : places) {
    if (!shown.contains(place)) others.systems.push_back(place);
  }
  if (!others.systems.empty()) comparison.panels.push_back(std::move(others));
  const std::string title = text_in(file, "title");
  comparison.title = title.empty() ? "Experiment " + text_in(file, "name") : title;
  add_facts(comparison, file);
}

// Lines of a chart are called as briefly as tells them apart.
void choose_titles(Comparison& comparison, const std::vector<size_t>& runs) {
  std::set<int64_t> counts;
  for (const size_t i : runs) {
    if (comparison.systems[i].experts > 0) counts.insert(comparison.systems[i].experts);
  }
  for (const size_t i : runs) {
    System& system = comparison.systems[i];
    const std::optional<Config>& config = system.runs.front().config;
    if (runs.size() > 1 && counts.size() == 1 && config) system.title = system_in_words(*config);
  }
  std::map<std::string, int> titles;

  for (const size_t i : runs) ++titles[comparison.systems[i].title];
  for (const size_t i : runs) {
    System& system = comparison.systems[i];
    if (titles[system.title] > 1) system.title += fmt::format(" ({})", system.id);
  }
}

void choose_names(Comparison& comparison) {
  const auto with_experts = [](const System& system) {
    return system.experts > 0 ? fmt::format("{}, {} experts", system.title, system.experts)
                              : system.title;
  };
  std::map<std::string, int> titles, longer;
  for (const System& system : comparison.systems) {
    ++titles[system.title];
    ++longer[with_experts(system)];
  }
  for (System& system : comparison.systems) {
    system.name = titles[system.title] == 1 ? system.title
                  : longer[with_experts(system)] == 1
                      ? with_experts(system)
                      : fmt::format("{} ({})", system.title, system.id);
  }
}

void choose_styles(Comparison& comparison) {
  std::map<std::string, size_t> styles;
  for (System& system : comparison.systems)
    system.style = styles.try_emplace(system.title, styles.size()).first->second;
}

}  // namespace

bool System::is_trained() const {
  return std::ranges::any_of(runs, [](const RunRecord& run) { return !run.steps.empty(); });
}

double Panel::planned_rate(const System& system) const {
  const auto rate = planned.tokens_per_second.find(system.id);
  return rate == planned.tokens_per_second.end() ? kUnknown : rate->second;
}

Comparison read_comparison(const std::vector<fs::path>& paths, const CountModel& count_model) {
  Comparison comparison;
  std::vector<size_t> runs;
  for (const fs::path& path : paths) {
    if (fs::exists(path / "experiment.json")) {
      add_experiment(comparison, path);
    } else if (RunDirectory::is_run(path)) {
      runs.push_back(comparison.systems.size());
      comparison.systems.push_back(system_of_run(path, count_model));
    } else {
      fail(
          "{} is neither a run nor an experiment: a folder was wanted that `ballast train` or "
          "`ballast experiment` made, with run.json or experiment.json in it",
          path.string());
    }
  }
  choose_titles(comparison, runs);
  add_notes_of_runs(comparison);

  if (!runs.empty())
    comparison.panels.push_back({comparison.panels.empty() ? "" : "Single runs", runs});
  choose_names(comparison);
  choose_styles(comparison);
  if (runs.size() == comparison.systems.size())
    comparison.title =
        runs.size() == 1 ? comparison.systems.front().title : fmt::format("{} runs", runs.size());
  else if (paths.size() > 1)
    comparison.title = fmt::format("{} experiments and runs", paths.size());
  return comparison;
}

}  // namespace ballast
