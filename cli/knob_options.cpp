// SPDX-License-Identifier: Apache-2.0
#include "cli/knob_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "ballast/config/config.h"

namespace ballast::cli {

void add_knob_options(CLI::App& command, std::map<std::string, std::string>& values) {
  for (const KnobHelp& knob : knob_help()) {
    const std::string name = knob.section + "." + knob.key;
    command
        .add_option_function<std::string>(
            "--" + name, [&values, name](const std::string& value) { values[name] = value; },
            fmt::format("{} [{}]", knob.help, knob.default_value))
        ->type_name(knob.type)
        ->multi_option_policy(
            CLI::MultiOptionPolicy::TakeLast)  // a script's defaults, then the user's
        ->group("Knobs, section [" + knob.section + "]");
  }
}

}  // namespace ballast::cli
