// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace ballast::cli {

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, beside a peer where there is one");
  command->require_subcommand(1);
  add_bench_step(*command, chosen);
  add_bench_layer(*command, chosen);
  add_bench_kernels(*command, chosen);
  add_bench_tokenizer(*command, chosen);
  add_bench_assignment(*command, chosen);
}

}  // namespace ballast::cli
