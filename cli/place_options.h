// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/at_least.h"

namespace ballast::cli {

// --device, one of `names`.
inline void add_device_option(CLI::App& command, std::string& device,
                              const std::vector<std::string>& names = {"auto", "cpu", "cuda"}) {
  command.add_option("--device", device, "where to compute")
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->type_name("NAME");
}

// --threads, of the CPU; 0: all cores.
template <class Number>
void add_threads_option(CLI::App& command, Number& threads) {
  command.add_option("--threads", threads, "CPU threads; 0: all cores")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("N");
}

}  // namespace ballast::cli
