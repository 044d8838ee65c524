// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/at_least.h"

namespace ballast::cli {

// A command of `app`: its name, its line in the list of all, and what its help ends with.
inline CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& about,
                             const std::string& notes) {
  CLI::App* command = app.add_subcommand(name, about);
  command->footer(notes);
  return command;
}

// An option that is a whole number of at least `least`.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& option, Number& value,
                        const std::string& help, int least = 1, const std::string& letter = "N") {
  return command.add_option(option, value, help)->check(at_least(least))->type_name(letter);
}

// An option that is a path, or several; `kind`: FILE, DIR, or PATH for either.
template <class Paths>
CLI::Option* add_path(CLI::App& command, const std::string& option, Paths& value,
                      const std::string& kind, const std::string& help) {
  return command.add_option(option, value, help)->type_name(kind);
}

// --json
inline void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print the result as one JSON object on stdout");
}

}  // namespace ballast::cli
