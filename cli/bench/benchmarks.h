// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/program.h"

namespace ballast::cli {

// Each adds one benchmark to `app`, as those of cli/commands.h add commands.
void add_bench_step(CLI::App& app, Action& chosen);
void add_bench_layer(CLI::App& app, Action& chosen);
void add_bench_kernels(CLI::App& app, Action& chosen);
void add_bench_tokenizer(CLI::App& app, Action& chosen);
void add_bench_assignment(CLI::App& app, Action& chosen);

}  // namespace ballast::cli
