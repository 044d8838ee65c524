// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/program.h"

namespace ballast::cli {

// `help [COMMAND ...]`: what `COMMAND --help` prints. REQUIRES: called when all commands are there.
void add_help(CLI::App& app, Action& chosen);

// The names of an app's commands that help lists.
std::vector<std::string> command_names(const CLI::App& app);

// "there is no command "trian"; the nearest is train (`ballast --help` lists them all)"
std::string no_such_command(const CLI::App& app, const std::string& word);

// "ballast bench step"
std::string full_name(const CLI::App& app);

}  // namespace ballast::cli
