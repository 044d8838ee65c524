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

// How the systems the paper compares, made of the same blocks, are trained in turns.

struct SystemTurns {
  int64_t rounds = 1, steps = 1;
};
// tokens/s and more of each, as `bench step --help` describes them. Collective; the same on all.
nlohmann::ordered_json measure_systems(const std::vector<std::string>& names,
                                       const std::vector<config::Config>& configs,
                                       const SystemTurns& turns, const model::ComputePlace& place,
                                       comm::Communicator& workers);

// What people see of one of them; `size` has the keys of the model's sizes.
std::string line_of_system(const nlohmann::ordered_json& size,
                           const nlohmann::ordered_json& system);

}  // namespace ballast::cli
