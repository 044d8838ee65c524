// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "cli/commands.h"
#include "cli/program.h"

namespace ballast::cli {
namespace {

constexpr const char* kAbout = R"(Ballast trains, evaluates and runs language models.

First steps
  ballast train                                 train a small model on the built-in corpus
  ballast generate runs/train                   let it write
  ballast prepare texts/ --out data/mine        turn your own text into tokens
  ballast train --data data/mine                train on it
  ballast assign --scores scores.npy            assign tokens to experts, balanced and optimal
  ballast help COMMAND                          all a command can do, with examples
)";

void add_all(CLI::App& app, Action& chosen) {
  add_prepare(app, chosen);
  add_tokenize(app, chosen);
  add_train(app, chosen);
  add_eval(app, chosen);
  add_generate(app, chosen);
  add_serve(app, chosen);
  add_import(app, chosen);
  add_export(app, chosen);
  add_params(app, chosen);
  add_report(app, chosen);
  add_plan(app, chosen);
  add_assign(app, chosen);
  add_bench(app, chosen);
  add_experiment(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  add_man(app, chosen);
}

bool computes(std::string_view command) {
  return command == "train" || command == "eval" || command == "generate" || command == "serve" ||
         command == "plan";
}

}  // namespace
}  // namespace ballast::cli

int main(int argc, char** argv) {
  return ballast::cli::run_program({.name = "ballast",
                                    .about = ballast::cli::kAbout,
                                    .add_commands = ballast::cli::add_all,
                                    .computes = ballast::cli::computes},
                                   argc, argv);
}
