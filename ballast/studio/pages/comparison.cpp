// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/config/system_words.h"
#include "ballast/record/run_directory.h"
#include "ballast/studio/pages/words.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/system/progress.h"

namespace ballast::pages {
namespace {

std::string title_of(const config::Config& config) {
  const std::string words = config::system_in_words(config);
  if (config.experts.layers == 0) return words;
  return fmt::format("{}, {} experts", words, config.experts.count);
}

// A path's last name, also of one that ends in a slash or is ".".
std::string folder_name(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(path);
  return whole.filename().empty() ? whole.string() : whole.filename().string();
}

// Names of folders, with those of the folders around them where that is what tells them apart.
std::vector<std::string> distinct_names(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::map<std::string, int> counts;
  for (const fs::path& folder : folders) ++counts[folder_name(folder)];
  for (const fs::path& folder : folders) {
    const std::string name = folder_name(folder);
    const fs::path around = fs::weakly_canonical(folder).parent_path();
    names.push_back(counts[name] > 1 ? fmt::format("{}/{}", folder_name(around), name) : name);
  }
  return names;
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

System system_of_run(RunRecord run, const std::string& name, const CountModel& count_model) {
  System system;
  system.id = name;
  system.title = system.words = system.id;
  if (run.config) {
    const config::ExpertsConfig& experts = run.config->experts;
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
  system.status = run.steps.empty() ? record::Progression::kPlanned : record::Progression::kTrained;
  system.runs.push_back(std::move(run));
  return system;
}

System system_of_record(const record::SystemRecord& record) {
  System system;
  system.id = record.id;
  system.title = record.title.empty() ? record.words : record.title;
  if (system.title.empty()) system.title = record.id;
  system.words = record.words;
  system.kind = record.kind;
  system.experts = record.experts.value_or(0);
  system.parameters = static_cast<double>(record.parameters);
  system.active = static_cast<double>(record.active);
  system.flops_per_token = record.flops_per_token;
  system.learning_rate = record.learning_rate.value_or(record::kUnknown);
  system.status = record.status;
  system.sweep = record.sweep;
  return system;
}

// Of runs that shared their hardware with others the clock tells nothing: a step took what it took
// when it was measured alone, by part too where that is known.
void retime(RunRecord& run, const StepAlone& alone) {
  const double step_seconds = alone.seconds;
  double before = 0;
  for (record::StepRecord& step : run.steps) {
    step.seconds = static_cast<double>(step.step) * step_seconds;
    step.tokens_per_second = (step.tokens - before) / step_seconds;
    before = step.tokens;
    if (!step.parts.empty()) step.parts = alone.parts;
    for (record::LayerStep& layer : step.layers)
      layer.assign_seconds = layer.exchange_seconds = record::kUnknown;
  }
  for (record::ValidationPoint& point : run.validations)
    point.seconds = static_cast<double>(point.step) * step_seconds;
}

// The runs that are there: of an experiment that goes on, later ones are not.
void add_runs(System& system, const record::SystemRecord& record, const fs::path& folder) {
  for (const record::TrainedRun& one : record.runs) {
    const fs::path path = folder / one.run;
    if (record::RunDirectory::is_run(path)) system.runs.push_back(read_run(path));
  }
}

void add_facts(Comparison& comparison, const record::Experiment& experiment) {
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty()) comparison.facts.push_back(fmt::format("{}: {}", name, value));
  };
  if (experiment.budget_seconds > 0)
    fact("training time of each system", format_duration(experiment.budget_seconds));
  if (experiment.workers > 0) fact("workers", fmt::format("{}", experiment.workers));
  if (experiment.at_once > 1)
    fact("trained side by side", fmt::format("{}; times are steps times the time of a step, "
                                             "measured alone before",
                                             experiment.at_once));
  fact("data", experiment.data);
  fact("machine", machine_in_words(parse_json(experiment.hardware)));
  fact("program", experiment.program_version);
}

void add_panels(Comparison& comparison, const record::Experiment& experiment,
                const std::map<std::string, size_t>& places) {
  std::set<size_t> shown;
  for (const record::PanelRecord& record : experiment.panels) {
    Panel panel = {record.title,
                   {},
                   record.plan.value_or(record::ClusterEstimate()),
                   experiment.training_seconds.value_or(record::kUnknown)};
    for (const std::string& id : record.systems) panel.systems.push_back(places.at(id));
    shown.insert(panel.systems.begin(), panel.systems.end());
    if (!panel.systems.empty()) comparison.panels.push_back(std::move(panel));
  }
  Panel others;
  for (const auto& [id, place] : places) {
    if (!shown.contains(place)) others.systems.push_back(place);
  }
  if (!others.systems.empty()) comparison.panels.push_back(std::move(others));
}

void add_experiment(Comparison& comparison, const fs::path& folder) {
  const record::Experiment experiment = record::load_experiment(folder / record::kExperimentFile);
  std::map<std::string, size_t> places;
  for (const record::SystemRecord& record : experiment.systems) {
    System system = system_of_record(record);
    add_runs(system, record, folder);
    if (experiment.at_once > 1 && record.step_seconds.value_or(0) > 0) {
      system.alone = {*record.step_seconds, record.step_parts};
      for (RunRecord& run : system.runs) retime(run, *system.alone);
    }
    if (!system.is_trained())
      comparison.notes.push_back(fmt::format("{}: {} so far, not trained", system.id,
                                             record::progression_name(system.status)));

    places[system.id] = comparison.systems.size();
    comparison.systems.push_back(std::move(system));
  }
  add_panels(comparison, experiment, places);
  comparison.title = experiment.title.empty() ? "Experiment " + experiment.name : experiment.title;
  add_facts(comparison, experiment);
}

// Whether both were measured on equally many tokens, as far as that is known: others cannot be
// averaged.
bool measured_alike(const RunRecord& one, const RunRecord& other) {
  if (!one.is_finished() || !other.is_finished() || !one.validation || !other.validation)
    return true;
  const double first = one.validation->tokens, second = other.validation->tokens;
  return first == second || !std::isfinite(first) || !std::isfinite(second);
}

bool has_seed(const std::vector<RunRecord>& runs, int64_t seed) {
  return std::ranges::any_of(
      runs, [&](const RunRecord& run) { return run.config && run.config->training.seed == seed; });
}

// Among the systems of single runs, the one that this run is another seed of; null: none.
System* system_of_seed(Comparison& comparison, const std::vector<size_t>& runs,
                       const RunRecord& run) {
  for (const size_t i : runs) {
    const std::vector<RunRecord>& seeds = comparison.systems[i].runs;
    const RunRecord& first = seeds.front();
    if (!run.config || !first.config || run.planned_steps() != first.planned_steps()) continue;
    if (!measured_alike(run, first) || has_seed(seeds, run.config->training.seed)) continue;
    const std::vector<std::string> others =
        config::differences(*first.config, *run.config, config::Compare::kWhatIsComputed);
    if (others.size() == 1 && others.front().starts_with("training.seed:"))
      return &comparison.systems[i];
  }
  return nullptr;
}

// Reads the runs among the paths, each into the system that it is of; returns those systems.
std::vector<size_t> add_runs_alone(Comparison& comparison, const std::vector<fs::path>& folders,
                                   const CountModel& count_model) {
  const std::vector<std::string> names = distinct_names(folders);
  std::vector<size_t> systems;
  for (size_t i = 0; i < folders.size(); ++i) {
    RunRecord run = read_run(folders[i]);
    if (System* const system = system_of_seed(comparison, systems, run); system != nullptr) {
      system->runs.push_back(std::move(run));
      continue;
    }
    systems.push_back(comparison.systems.size());
    comparison.systems.push_back(system_of_run(std::move(run), names[i], count_model));
  }
  return systems;
}

// Lines of a chart are called as briefly as tells them apart.
void choose_titles(Comparison& comparison, const std::vector<size_t>& runs) {
  std::set<int64_t> counts;
  for (const size_t i : runs) {
    if (comparison.systems[i].experts > 0) counts.insert(comparison.systems[i].experts);
  }
  for (const size_t i : runs) {
    System& system = comparison.systems[i];
    const std::optional<config::Config>& config = system.runs.front().config;
    if (runs.size() > 1 && counts.size() == 1 && config)
      system.title = config::system_in_words(*config);
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

constexpr size_t kNamedRuns = 3;  // of more, a title has the number

void name_page(Comparison& comparison, const std::vector<fs::path>& paths,
               const std::vector<fs::path>& folders) {
  const auto count = static_cast<double>(paths.size());
  const std::string all = folders.empty() ? plural(count, "experiment")
                          : folders.size() == paths.size()
                              ? plural(count, "run")
                              : fmt::format("{} experiments and runs", count);
  if (paths.size() > 1) {
    const bool are_few = paths.size() <= kNamedRuns;
    comparison.title = are_few ? in_words(distinct_names(paths)) : all;
    comparison.what = are_few ? all + " side by side" : "side by side";
  } else if (folders.empty()) {
    comparison.what = "experiment " + folder_name(paths.front());
  } else {
    comparison.title = folder_name(folders.front());
    comparison.what = comparison.systems.front().words;
  }
}

}  // namespace

bool System::is_trained() const {
  return std::ranges::any_of(runs, [](const RunRecord& run) { return !run.steps.empty(); });
}

double Panel::planned_rate(const System& system) const {
  const auto rate = planned.tokens_per_second.find(system.id);
  return rate == planned.tokens_per_second.end() ? record::kUnknown : rate->second;
}

std::string Panel::planned_cluster() const {
  if (planned.workers == 0) return "";
  return fmt::format("{} x {}, {}", planned.workers, planned.device, planned.network);
}

Comparison read_comparison(const std::vector<fs::path>& paths, const CountModel& count_model) {
  Comparison comparison;
  std::vector<fs::path> folders;  // of single runs
  for (const fs::path& path : paths) {
    if (fs::exists(path / record::kExperimentFile)) {
      add_experiment(comparison, path);
    } else if (record::RunDirectory::is_run(path)) {
      folders.push_back(path);
    } else {
      fail(
          "{} is neither a run nor an experiment: a folder was wanted that `ballast train` or "
          "`ballast experiment` made, with run.json or experiment.json in it",
          path.string());
    }
  }
  const std::vector<size_t> runs = add_runs_alone(comparison, folders, count_model);
  choose_titles(comparison, runs);
  add_notes_of_runs(comparison);
  if (!runs.empty())
    comparison.panels.push_back({comparison.panels.empty() ? "" : "Single runs", runs});
  choose_names(comparison);
  choose_styles(comparison);
  name_page(comparison, paths, folders);
  return comparison;
}

}  // namespace ballast::pages
