// SPDX-License-Identifier: Apache-2.0
// ballast-bench, which `ballast bench` starts.
#include <CLI/CLI.hpp>

#include "cli/bench/benchmarks.h"
#include "cli/declarations.h"
#include "cli/program.h"

namespace ballast::cli {
namespace {

void add_benchmarks(CLI::App& app, Action& chosen) {
  app.require_subcommand(1);
  add_bench_step(app, chosen);
  add_bench_layer(app, chosen);
  add_bench_kernels(app, chosen);
  add_bench_tokenizer(app, chosen);
  add_bench_assignment(app, chosen);
  add_declarations(app, chosen);
}

}  // namespace
}  // namespace ballast::cli

int main(int argc, char** argv) {
  return ballast::cli::run_program({.name = "ballast bench",
                                    .about = "Measure speed, beside a peer where there is one",
                                    .add_commands = ballast::cli::add_benchmarks,
                                    .computes = [](std::string_view) { return true; }},
                                   argc, argv);
}
