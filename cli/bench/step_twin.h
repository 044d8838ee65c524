// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/model/device.h"
#include "cli/bench/options.h"
#include "cli/bench/twin_process.h"

namespace ballast::cli {

// A model and its training step in plain PyTorch (benchmarks/twin/step_twin.py), dense or with one
// BASE layer, in turns with ours. There may be none: see start_twin.
class StepTwin {
 public:
  // Of `config`, on the device of `place`. It knows neither several routing groups nor experts that
  // do not divide the tokens. Then there is none, with a warning; a UserError if one was asked for.
  StepTwin(const config::Config& config, const model::ComputePlace& place,
           const BenchOptions& options, const TwinOptions& twin);

  void take_turn(int64_t steps);       // the first warms up and does not count
  const std::string& version() const;  // of PyTorch; empty: there is no twin
  // The row's twin_step_ms, twin_tokens_per_second, speedup and, with experts, twin_assign_ms;
  // null: there is no twin. Ours took `seconds`.
  void add_to(nlohmann::ordered_json& row, double seconds) const;

 private:
  const config::Config config_;
  Twin twin_;
  bool is_warm_ = false;
  std::vector<double> steps_, assignments_;  // seconds
};

}  // namespace ballast::cli
