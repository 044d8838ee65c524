// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "ballast/system/console.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "cli/command.h"
#include "cli/place_options.h"

namespace ballast::cli {

size_t BenchOptions::num_threads() const {
  return threads > 0 ? static_cast<size_t>(threads) : num_cores();
}

model::ComputePlace BenchOptions::choose_place() const {
  return model::choose_place({.device = device, .threads = threads});
}

void add_bench_options(CLI::App& command, BenchOptions& options) {
  add_threads_option(command, options.threads);
  add_number(command, "--rounds,--repeats", options.rounds, "turns each takes; times are medians")
      ->capture_default_str();
  add_json_flag(command, options.json);
}

void print_row(const BenchOptions& options, const std::string& line) {
  if (!options.json) clear_bar();  // both may be the same terminal
  options.json ? log_line(line) : fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace ballast::cli
