// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// Words as execve and posix_spawn take them, null at the end. They point into `words`, which must
// stay as it is meanwhile; neither call changes what they point to.
inline std::vector<char*> argument_pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Our environment as execve takes it, "NAME=value" each, but for variables that are left out.
inline std::vector<std::string> environment_without(
    const std::function<bool(std::string_view variable)>& is_left_out) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!is_left_out(*variable)) variables.emplace_back(*variable);
  }
  return variables;
}

}  // namespace ballast
