// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/config/config.h"

namespace ballast::config {

// What the weights belong to: the sections model and experts as TOML, without help, readable by
// read_recorded_config.
std::string shape_to_toml(const Config& config);

}  // namespace ballast::config
