// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace ballast::cli {

// What the command line chose; returns the exit code.
using Action = std::function<int()>;

// Each adds one subcommand: its options, its help with examples, and the action it chooses.
void add_prepare(CLI::App& app, Action& chosen);
void add_train(CLI::App& app, Action& chosen);
void add_eval(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_export(CLI::App& app, Action& chosen);
void add_params(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_assign(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_experiment(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);

// Parts of `bench`.
void add_bench_tokenizer(CLI::App& bench, Action& chosen);
void add_bench_step(CLI::App& bench, Action& chosen);
void add_bench_layer(CLI::App& bench, Action& chosen);
void add_bench_kernels(CLI::App& bench, Action& chosen);
void add_bench_assignment(CLI::App& bench, Action& chosen);

}  // namespace ballast::cli
