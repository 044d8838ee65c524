// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ballast::cli {

// A row of `bench step` for people. `mode` and `twin_version` are the twin's.
std::string step_line(const nlohmann::ordered_json& row, const std::string& mode,
                      const std::string& twin_version);

}  // namespace ballast::cli
