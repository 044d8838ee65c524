// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::record {

// How far a system of an experiment has come.
enum class Progression { kPlanned, kMeasured, kSwept, kTrained };
std::string_view progression_name(Progression status);  // "planned"

// One learning rate of a system's sweep. No loss: it diverged.
struct SweptRate {
  double learning_rate = 0;
  int64_t steps = 0;
  std::optional<double> loss;
};

// A run that is trained to its end; `run` is its folder, as seen from the experiment's.
struct TrainedRun {
  int64_t seed = 1;
  std::string run;
};

// What the cost model expects of one cluster: tokens a second of systems, by id.
struct ClusterEstimate {
  int64_t workers = 0;
  std::string device, network;
  std::map<std::string, double> tokens_per_second;
};

// One system of an experiment, and what is known of it so far.
struct SystemRecord {
  std::string id, title, words;
  std::string kind;                          // base, dense, switch or sparsely_gated
  std::optional<int64_t> experts;            // of each layer; none: dense
  std::map<std::string, std::string> knobs;  // what its runs are started with
  int64_t parameters = 0, active = 0;
  double flops_per_token = 0;
  int64_t tokens_per_step = 0;
  // Measured, with nothing else running: once learning is under way, by which the budget goes, and
  // right after the start.
  std::optional<double> step_seconds, early_step_seconds;
  std::map<std::string, double> step_parts;  // of it, as metrics.jsonl names parts
  std::optional<int64_t> steps;              // fixed once all are measured
  std::vector<SweptRate> sweep;              // as far as it is done
  std::optional<double> learning_rate;
  std::vector<TrainedRun> runs;
  Progression status = Progression::kPlanned;
};

// The systems that one chart compares, by id, and what is expected of them, all on one cluster.
struct PanelRecord {
  std::string title;
  std::vector<std::string> systems;
  std::optional<ClusterEstimate> plan = {};  // none: an older program wrote it
};

// An experiment: what was asked for, and how far it has come. experiment.json is this.
struct Experiment {
  std::string name, title;
  double budget_seconds = 0;               // of training, for each system, as asked for
  std::optional<double> training_seconds;  // the same, or less where data would repeat too often
  double max_epochs = 0;
  double middle_rate = 0;  // the learning rate that sweeps are around, or that all have
  int64_t workers = 1, rates = 1, seeds = 1, at_once = 1;
  int64_t tokens_per_step = 0;  // of most systems
  std::string rates_from;  // the experiment whose step times and learning rates these are; or empty
  std::string data;
  std::string program_version;
  std::string hardware = "{}";  // a JSON object
  std::vector<PanelRecord> panels;
  std::vector<SystemRecord> systems;
};

// As docs/file_formats.md describes it. load: UserError names the file where it is damaged, not
// ours, or newer; save: whole or not at all.
inline constexpr const char* kExperimentFile = "experiment.json";
Experiment load_experiment(const std::filesystem::path& file);
void save_experiment(const std::filesystem::path& file, const Experiment& experiment);
// The panels as they stand there.
nlohmann::ordered_json panels_json(const Experiment& experiment);

// Where `wanted` differs from what `stored` was started with, as "--budget: 600s -> 1200s"; empty:
// it can go on. There may be more seeds, and how many train at once may change.
std::vector<std::string> differences(const Experiment& stored, const Experiment& wanted);

}  // namespace ballast::record
