// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ballast/record/experiment_file.h"
#include "ballast/studio/pages/run_record.h"

namespace ballast::pages {

// A step measured while nothing else ran, of systems whose runs shared their hardware.
struct StepAlone {
  double seconds = record::kUnknown;
  std::map<std::string, double> parts = {};  // seconds by part; empty: not measured
};

// One system with its runs, which differ in their seeds.
struct System {
  std::string id, title, words;  // title: what its lines are called within a panel; words: in full
  std::string name = {};  // unique in the report: the title, where needed with its experts or id
  std::string kind;       // base, dense, switch, sparsely_gated
  int64_t experts = 0;    // 0: dense
  double parameters = record::kUnknown, active = record::kUnknown,
         flops_per_token = record::kUnknown;
  double learning_rate = record::kUnknown;
  std::vector<record::SweptRate> sweep = {};
  std::optional<StepAlone> alone = {};  // there: times of its runs are steps times this
  record::Progression status = record::Progression::kPlanned;
  std::vector<RunRecord> runs = {};
  size_t style = 0;  // of its lines; systems of one title have the same

  bool is_trained() const;  // some run has steps
};

struct Panel {
  std::string title;  // may be empty
  std::vector<size_t> systems;
  record::ClusterEstimate planned = {};  // of no workers: none
  double seconds = record::kUnknown;     // that each system was to train, by its experiment

  double planned_rate(const System& system) const;  // NaN: none
  std::string planned_cluster() const;              // "128 x v100, infiniband"; empty: none
};

// What a report is about: an experiment, a run, or several of them side by side.
struct Comparison {
  std::string title;  // the name of the run; of several their names, of many their number
  std::string what;   // "BASE x1, 8 experts", "3 runs side by side"
  std::vector<System> systems;
  std::vector<Panel> panels;       // each system is in one at least
  std::vector<std::string> facts;  // of experiments: budget, workers, data, machine, version
  std::vector<std::string> notes;  // what is missing or damaged

  bool is_single_run() const { return systems.size() == 1 && systems.front().runs.size() == 1; }
};

// Parameters, those a token meets, and operations a token takes, counted from a configuration.
struct ModelCounts {
  double parameters = record::kUnknown, active = record::kUnknown,
         flops_per_token = record::kUnknown;
};
using CountModel = std::function<ModelCounts(const config::Config&)>;

// Reads runs and experiments. Throws UserError if a path is neither. Runs that differ in their seed
// alone are one system. Those whose systems have the same name are told apart by their folders.
Comparison read_comparison(const std::vector<std::filesystem::path>& paths,
                           const CountModel& count_model);

}  // namespace ballast::pages
