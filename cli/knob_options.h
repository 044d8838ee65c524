// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace ballast::cli {

// What a command was told about its configuration.
struct ConfigOptions {
  std::string file, scale;  // empty: not given
  std::map<std::string, std::string> knobs;

  // Throws UserError where a scale is asked for and there is no file.
  std::string scale_of_file() const;
  std::vector<std::pair<std::string, std::string>> overrides() const;
};

// CONFIG, --scale, and every knob as --SECTION.KEY in a group for each section. Values are put into
// `options` unchecked. REQUIRES: `options` outlives the parsing.
void add_config_options(CLI::App& command, ConfigOptions& options, const std::string& file_help);

}  // namespace ballast::cli
