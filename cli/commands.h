// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/program.h"

namespace ballast::cli {

// Each adds one subcommand: its options, its help with examples, and the action it chooses.
void add_prepare(CLI::App& app, Action& chosen);
void add_tokenize(CLI::App& app, Action& chosen);
void add_train(CLI::App& app, Action& chosen);
void add_eval(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_serve(CLI::App& app, Action& chosen);
void add_import(CLI::App& app, Action& chosen);
void add_export(CLI::App& app, Action& chosen);
void add_params(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_assign(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_experiment(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_completion(CLI::App& app, Action& chosen);
void add_man(CLI::App& app, Action& chosen);

}  // namespace ballast::cli
