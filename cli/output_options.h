// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ballast::cli {

// What every command takes, before its name or after it: what becomes of all that is said on
// stderr.
struct OutputOptions {
  bool quiet = false;
  std::string log;  // empty: none

  void apply() const;  // UserError: the log cannot be written
};

// --quiet and --log, of the program and of each of its commands. REQUIRES: called when all of them
// are there; `options` outlives the parsing.
void add_output_options(CLI::App& app, OutputOptions& options);

// Whether `name` is one of them.
bool is_output_option(const std::string& name);

// The place in `words` of the command's name, the first behind the program's own options; its size:
// there is none.
size_t place_of_command(const std::vector<std::string>& words);

// The command line of a worker: what it says is its launcher's to show and to log.
void remove_output_options(std::vector<std::string>& words);

}  // namespace ballast::cli
