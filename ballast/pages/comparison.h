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

#include "ballast/pages/run_record.h"

namespace ballast {

struct SweepPoint {
  double learning_rate = kUnknown, steps = kUnknown;
  double loss = kUnknown;  // NaN: diverged
};

// What the cost model says of a panel's systems, all on one cluster.
struct PlannedRates {
  std::string cluster = {};                              // "128 x v100, infiniband"; empty: none
  std::map<std::string, double> tokens_per_second = {};  // by id
};

// A step measured while nothing else ran, of systems whose runs shared their hardware.
struct StepAlone {
  double seconds = kUnknown;
  std::map<std::string, double> parts = {};  // seconds by part; empty: not measured
};

// One system with its runs, which differ in their seeds.
struct System {
  std::string id, title, words;  // title: what its lines are called within a panel; words: in full
  std::string name = {};  // unique in the report: the title, where needed with its experts or id
  std::string kind;       // base, dense, switch, sparsely_gated
  int64_t experts = 0;    // 0: dense
  double parameters = kUnknown, active = kUnknown, flops_per_token = kUnknown;
  double learning_rate = kUnknown;
  std::vector<SweepPoint> sweep = {};
  std::vector<std::pair<std::string, std::string>> knobs = {};
  std::optional<StepAlone> alone = {};  // if set, times of its runs are steps times this
  std::string status = {};
  std::vector<RunRecord> runs = {};
  size_t style = 0;  // of its lines; systems of one title have the same

  bool is_trained() const;  // some run has steps
};

struct Panel {
  std::string title;  // may be empty
  std::vector<size_t> systems;
  PlannedRates planned = {};

  double planned_rate(const System& system) const;  // NaN: none
};

// What a report is about: an experiment, a run, or several of them side by side.
struct Comparison {
  std::string title;
  std::vector<System> systems;
  std::vector<Panel> panels;       // each system is in one at least
  std::vector<std::string> facts;  // of experiments: budget, workers, data, machine, version
  std::vector<std::string> notes;  // what is missing or damaged

  bool is_single_run() const { return systems.size() == 1 && systems.front().runs.size() == 1; }
};

// Parameters, those a token meets, and operations a token takes, counted from a configuration.
struct ModelCounts {
  double parameters = kUnknown, active = kUnknown, flops_per_token = kUnknown;
};
using CountModel = std::function<ModelCounts(const Config&)>;

// Reads runs and experiments. Throws UserError if a path is neither. Runs whose systems have the
// same name are told apart by their folders.
Comparison read_comparison(const std::vector<std::filesystem::path>& paths,
                           const CountModel& count_model);

}  // namespace ballast
