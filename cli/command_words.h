// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ballast::cli {

// What this process was started with; the first word is the path of its program.
std::vector<std::string> own_command_line();

enum class Takes { kNothing, kValue };

// Removes `name` in either spelling, "--name value" or "--name=value", up to a "--".
void remove_option(std::vector<std::string>& words, const std::string& name, Takes takes);

}  // namespace ballast::cli
