// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/model/device.h"

namespace ballast::cli {

// The systems the paper compares, of the same blocks, trained in turns.

// "all": those that this many workers can run; else names with commas between. UserError lists
// them.
std::vector<std::string> parse_systems(const std::string& text, int64_t workers);

struct SystemExperts {
  int64_t count = 8;
  int64_t sublayers = 3;  // of all BASE layers of a model together
  int64_t groups = 0;     // 0: as many as workers
};
// That system, of the dense model's blocks, checked for these workers.
Config config_of_system(const std::string& name, const Config& dense, const SystemExperts& experts,
                        int64_t workers);

struct SystemTurns {
  int64_t rounds = 1, steps = 1;
};
// tokens/s and more of each, as `bench step --help` describes them. Collective; the same on all.
nlohmann::ordered_json measure_systems(const std::vector<std::string>& names,
                                       const std::vector<Config>& configs, const SystemTurns& turns,
                                       const ComputePlace& place, Communicator& workers);

// What people see of one of them; `size` has the keys of the model's sizes.
std::string line_of_system(const nlohmann::ordered_json& size,
                           const nlohmann::ordered_json& system);

}  // namespace ballast::cli
