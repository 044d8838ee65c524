// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/config/config.h"
#include "cli/knob_options.h"

namespace ballast::cli {

// The configuration of `file` (empty: none) with the options' scale and knobs, checked; its
// vocabulary is known, though no data are opened. Throws UserError where only the data could tell
// it.
config::Config read_sized_config(const ConfigOptions& options, const std::string& file);

}  // namespace ballast::cli
