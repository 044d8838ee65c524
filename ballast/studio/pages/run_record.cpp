// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "ballast/record/json_fields.h"
#include "ballast/record/run_directory.h"
#include "ballast/record/run_log.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/system/progress.h"

namespace ballast::pages {
namespace {

using nlohmann::json;

std::string text_or_nothing(const fs::path& path) {
  return fs::exists(path) ? read_text(path) : "";
}

void read_config(RunRecord& run) {
  run.config_text = text_or_nothing(run.path / "config.toml");
  if (run.config_text.empty()) {
    run.notes.emplace_back("config.toml is missing");
    return;
  }
  try {
    config::Config config;
    config::read_recorded_config(config, run.config_text, (run.path / "config.toml").string());
    run.config = config;
  } catch (const UserError& error) {
    run.notes.push_back(fmt::format("config.toml is not understood: {}", error.what()));
  }
}

// A command as it can be given to a shell again.
std::string as_typed(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  std::string command;
  for (const std::string& word : words) {
    if (!command.empty()) command += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      command += word;
      continue;
    }
    command += '\'';
    for (const char letter : word) letter == '\'' ? command += "'\\''" : command += letter;
    command += '\'';
  }
  return command;
}

void read_starts(RunRecord& run) {
  const json file = parse_json_or_discard(text_or_nothing(run.path / "run.json"));
  if (!record::field_in(file, "starts").is_array())
    run.notes.emplace_back("run.json is damaged: how the run was started is not known");
  for (const json& start : record::list_in(file, "starts")) {
    std::vector<std::string> words;
    for (const json& word : record::list_in(start, "command_line"))
      words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    run.starts.push_back({record::count_in(start, "step"), record::text_in(start, "time"),
                          record::text_in(start, "program_version"), as_typed(words),
                          machine_in_words(record::field_in(start, "hardware")),
                          record::count_in(start, "workers")});
  }
}

// Runs of earlier programs called the bound of an inexact solver a gap, too.
void rename_bounds(RunRecord& run) {
  if (!run.config || run.config->experts.solver == config::TrainingSolver::kExact) return;
  for (record::StepRecord& step : run.steps) {
    for (record::LayerStep& layer : step.layers) {
      if (std::isfinite(layer.relative_gap))
        layer.shortfall_bound = std::exchange(layer.relative_gap, record::kUnknown);
    }
  }
}

// The routing of `valid_loss` in metrics.jsonl.
std::string routing_of(const RunRecord& run, const record::RoutingUse& main) {
  if (main.layers.empty()) return "";
  return run.config && run.config->experts.traits().balanced
             ? config::name_of(run.config->experts.tested_routing())
             : "greedy";
}

void read_steps(RunRecord& run) {
  const fs::path path = run.path / "metrics.jsonl";
  if (!fs::exists(path)) {
    run.notes.emplace_back("metrics.jsonl is missing: no step was recorded");
    return;
  }
  record::Metrics metrics = record::read_metrics(path);
  if (metrics.damaged > 0)
    run.notes.push_back(fmt::format("metrics.jsonl: {} damaged line{} passed over", metrics.damaged,
                                    metrics.damaged > 1 ? "s" : ""));
  if (metrics.is_torn)
    run.notes.emplace_back("metrics.jsonl: its last line is torn, or was just being written");
  run.steps = std::move(metrics.steps);
  run.validations = std::move(metrics.validations);
  run.validation = std::move(metrics.last_validation);
  rename_bounds(run);
  if (!run.validation) return;
  record::RoutingUse& main = run.validation->routings.front();
  main.routing = routing_of(run, main);
}

void read_last_validation(RunRecord& run) {
  const fs::path path = run.path / "validation.json";
  if (!fs::exists(path)) {
    if (run.validation)
      run.notes.emplace_back(
          "validation.json is missing: the run was written before it existed, or has not come to "
          "its last validation");
    else
      run.notes.emplace_back("there was no validation yet");
    return;
  }
  try {
    record::LastValidation validation = record::read_validation(path);
    if (run.validation && run.validation->step != validation.step) {
      run.notes.push_back(fmt::format(
          "validation.json is of step {}, the last validation of step {}: it is left aside",
          validation.step, run.validation->step));
      return;
    }
    run.validation = std::move(validation);
    run.has_validation_file = true;
  } catch (const UserError& error) {
    run.notes.emplace_back(error.what());
  }
}

void read_sample(RunRecord& run) {
  const auto samples = record::read_samples(text_or_nothing(run.path / "samples.txt"));
  if (samples.empty()) return;
  run.sample_step = static_cast<int64_t>(samples.back().step);
  run.sample = samples.back().text;
}

void note_progress(RunRecord& run) {
  if (!run.steps.empty() && !run.is_finished())
    run.notes.push_back(fmt::format("interrupted at step {} of {}, or still going on",
                                    run.steps_done(), run.planned_steps()));
}

}  // namespace

bool RunRecord::is_finished() const {
  if (steps.empty()) return false;
  const double limit = config ? config->training.max_time : 0;
  return steps_done() >= planned_steps() || (limit > 0 && seconds() >= limit);
}

RunRecord read_run(const fs::path& folder) {
  if (!record::RunDirectory::is_run(folder))
    fail("{} is not the folder of a run (there is no run.json of Ballast in it)", folder.string());
  RunRecord run;
  run.path = folder;
  read_config(run);
  read_starts(run);
  read_steps(run);
  read_last_validation(run);
  read_sample(run);
  note_progress(run);
  return run;
}

std::string machine_in_words(const json& hardware) {
  std::vector<std::string> words;
  std::map<std::string, int> gpus;
  for (const json& gpu : record::list_in(hardware, "gpus")) {
    if (gpu.is_string()) ++gpus[gpu.get<std::string>()];
  }
  for (const auto& [name, count] : gpus)
    words.push_back(count > 1 ? fmt::format("{} x {}", count, name) : name);
  if (const std::string cpu = record::text_in(hardware, "cpu"); !cpu.empty()) words.push_back(cpu);
  if (const int64_t cores = record::count_in(hardware, "cores"); cores > 0)
    words.push_back(fmt::format("{} core{}", cores, cores > 1 ? "s" : ""));
  if (const double memory = record::number_in(hardware, "memory_bytes"); memory > 0)
    words.push_back(format_bytes(memory));
  if (const std::string system = record::text_in(hardware, "os"); !system.empty())
    words.push_back(system);
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace ballast::pages
