// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ballast/model/device.h"

namespace CLI {
class App;
}

namespace ballast::cli {

// What benchmarks have in common.
struct BenchOptions {
  config::DeviceChoice device = config::DeviceChoice::kAuto;
  int64_t threads = 0;  // 0: all cores
  int64_t rounds = 15;  // turns each contender takes
  bool json = false;

  size_t num_threads() const;  // resolved
  model::ComputePlace choose_place() const;
};

// --threads, --rounds (also called --repeats), --json. Those that choose a device add it
// themselves: cli/place_options.h.
void add_bench_options(CLI::App& command, BenchOptions& options);

// Prints a row as soon as it is known: the result itself, or with --json what people see meanwhile.
void print_row(const BenchOptions& options, const std::string& line);

}  // namespace ballast::cli
