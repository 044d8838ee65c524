// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/record/experiment_file.h"

namespace ballast::experiments {

// What an experiment compares: the systems of one of the paper's figures, and of two of our own.

// dense, sparse, expert-size, placement, routing, overview, frames; and all, which has their
// panels.
std::vector<std::string> comparison_names();

struct ComparisonRequest {
  std::string name;
  // The dense model that all are made of; model.vocabulary is known. experts.groups 0: those that
  // come closest to 2048 tokens each.
  config::Config blocks;
  std::vector<int64_t> experts;  // a panel for each; empty: what the paper has, 8, 32 and 128 or
                                 // `usual_experts`
  // Of all BASE layers of a model together, as far as its layers divide them. 0: 3; for placement
  // 6. (It also has at least 6 blocks, so that five layers find their places.)
  int64_t sublayers = 0;
  int64_t usual_experts = 128;  // where the paper has 128 experts alone
  int64_t workers = 1;
  std::vector<std::string> only;  // ids, with or without "-e8" at the end; empty: all
};

struct ComparedSystem {
  std::string id, title;
  config::Config config;
  int64_t shards = 1;  // workers among whom the paper divides it
};

struct PlannedComparison {
  std::string title;
  std::vector<record::PanelRecord> panels;
  std::vector<ComparedSystem> systems;  // each once, in the order they are met in panels
};

// Systems of several panels that are the same model become one. Each panel is planned for one
// cluster, so such a model has a rate in each. Every config is checked for the workers. UserError
// names the experiment, the knob, or an id of `only` that does not exist.
PlannedComparison describe_comparison(const ComparisonRequest& request);

// The records an experiment starts with: nothing of them is measured. Knobs are those that differ
// from the defaults, but for the ones that the experiment decides for each run.
std::vector<record::SystemRecord> records_of(const PlannedComparison& comparison);
// Whether the length of a run, its purpose or its place in the experiment decides that knob.
bool is_decided_for_each_run(const std::string& knob);

}  // namespace ballast::experiments
