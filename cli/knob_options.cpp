// SPDX-License-Identifier: Apache-2.0
#include "cli/knob_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "ballast/config/config.h"
#include "ballast/system/error.h"

namespace ballast::cli {
namespace {

void add_knobs(CLI::App& command, std::map<std::string, std::string>& values) {
  for (const config::KnobHelp& knob : config::knob_help()) {
    const std::string name = knob.section + "." + knob.key;
    const char* const short_name = name == "training.model_parallel" ? ",--model-parallel" : "";
    command
        .add_option_function<std::string>(
            "--" + name + short_name,
            [&values, name](const std::string& value) { values[name] = value; },
            fmt::format("{} [{}]", knob.help, knob.default_value))
        ->type_name(knob.type)
        ->multi_option_policy(
            CLI::MultiOptionPolicy::TakeLast)  // a script's defaults, then the user's
        ->group("Knobs, section [" + knob.section + "]");
  }
}

}  // namespace

std::string ConfigOptions::scale_of_file() const {
  if (file.empty() && !scale.empty())
    fail("--scale {}: it chooses among the sizes of a config file; name one, --config FILE", scale);
  return scale.empty() ? config::scale_names().front() : scale;
}

std::vector<std::pair<std::string, std::string>> ConfigOptions::overrides() const {
  return {knobs.begin(), knobs.end()};
}

void add_config_options(CLI::App& command, ConfigOptions& options, const std::string& file_help) {
  command.add_option("CONFIG,--config", options.file, file_help)->type_name("FILE");
  command
      .add_option("--scale", options.scale,
                  "which sizes of the config file: its own, as in the paper, or those it has for "
                  "one GPU or a laptop's cores [paper]")
      ->check(CLI::IsMember(config::scale_names()));
  add_knobs(command, options.knobs);
}

}  // namespace ballast::cli
