// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace CLI {
class App;
}

namespace ballast::cli {

// Every knob as an option of `command`, --SECTION.KEY, in a group for each section. Those that were
// given are put into `values`, by name, unchecked. REQUIRES: `values` outlives the parsing.
void add_knob_options(CLI::App& command, std::map<std::string, std::string>& values);

}  // namespace ballast::cli
