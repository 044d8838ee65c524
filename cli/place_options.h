// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/config/choices.h"
#include "cli/command.h"

namespace ballast::cli {

// An option that takes the names of an enum's values, or some of them.
template <typename Enum>
CLI::Option* add_choice(CLI::App& command, const std::string& option, Enum& value,
                        const std::string& help, std::vector<std::string> names = {}) {
  if (names.empty()) {
    for (const std::string_view name : config::names_of(value)) names.emplace_back(name);
  }
  const auto set = [&value](const std::string& name) { value = config::choice_of<Enum>(name); };
  return command.add_option_function<std::string>(option, set, help)
      ->check(CLI::IsMember(names))
      ->default_str(config::name_of(value))
      ->type_name("NAME");
}

// --device
inline void add_device_option(CLI::App& command, config::DeviceChoice& device,
                              const std::vector<std::string>& names = {}) {
  add_choice(command, "--device", device, "where to compute", names);
}

// --threads, of the CPU; 0: all cores.
template <class Number>
void add_threads_option(CLI::App& command, Number& threads) {
  add_number(command, "--threads", threads, "CPU threads; 0: all cores", 0)->capture_default_str();
}

}  // namespace ballast::cli
