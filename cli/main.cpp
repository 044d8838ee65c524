// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "ballast/config/config.h"
#include "ballast/system/mapped_ranges.h"
#include "ballast/system/version.h"
#include "cli/commands.h"
#include "cli/complaint.h"

namespace ballast::cli {
namespace {

constexpr const char* kAbout = R"(Ballast trains, evaluates and runs language models.

First steps
  ballast train                                 train a small model on the built-in corpus
  ballast generate runs/train                   let it write
  ballast prepare texts/ --out data/mine        turn your own text into tokens
  ballast train --data data/mine                train on it
  ballast assign --scores scores.npy            assign tokens to experts, balanced and optimal
  ballast COMMAND --help                        all a command can do, with examples
)";

// The innermost subcommand that was reached, which knows the options that were possible.
const CLI::App* reached(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

// "ballast bench step"
std::string full_name(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : full_name(app->get_parent()) + " " + app->get_name();
}

// What CLI11 could not place: names the nearest option or command.
std::string explain_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const CLI::App* command = reached(&app);
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string& word = extras.front();
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("there is no option {}; the nearest is {} (`{} --help` lists them all)",
                       name, nearest(name, names), full_name(command));
  }
  if (command->get_subcommands([](const CLI::App*) { return true; }).empty()) {
    return fmt::format("\"{}\" is more than {} takes", word, command->get_name());
  }
  std::vector<std::string> commands;
  for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(sub->get_name());
  return fmt::format("there is no command \"{}\"; the nearest is {}", word,
                     nearest(word, commands));
}

int run(int argc, char** argv) {
  CLI::App app(kAbout, "ballast");
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  Action chosen;
  add_prepare(app, chosen);
  add_train(app, chosen);
  add_eval(app, chosen);
  add_generate(app, chosen);
  add_export(app, chosen);
  add_params(app, chosen);
  add_report(app, chosen);
  add_plan(app, chosen);
  add_assign(app, chosen);
  add_bench(app, chosen);
  add_experiment(app, chosen);
  add_doctor(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    return complain(explain_extras(app, app.remaining(true)), kUserMistake);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      return with_output_written(app.exit(error));
    }
    return complain(
        fmt::format("{} (`{} --help` tells more)", error.what(), full_name(reached(&app))),
        kUserMistake);
  }
  if (!chosen) {
    fmt::print("{}", app.help());
    return with_output_written(argc > 1 ? kUserMistake : 0);
  }
  return with_output_written(chosen());
}

// Where a standard stream is closed, the next file that is opened would take its place, and be
// written to. So something stands there that refuses to be read (stdin) or written (stdout).
void fill_closed_streams() {
  constexpr std::array kModes = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = 0; stream < std::ssize(kModes); ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", kModes[static_cast<size_t>(stream)]);
  }
}

// How OpenMP's threads wait for each other. By default they spin for milliseconds: on a machine
// that does anything else meanwhile, one takes the core of the other it waits for, and a small
// model's step takes several times as long. The library reads this when it is loaded: hence the new
// start.
void let_waiting_threads_sleep(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command != "train" && command != "eval" && command != "generate" && command != "bench" &&
      command != "plan")
    return;
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  ::execv("/proc/self/exe", argv);  // where that fails, we go on as we are
}

}  // namespace
}  // namespace ballast::cli

int main(int argc, char** argv) {
  ballast::cli::fill_closed_streams();
  ballast::cli::let_waiting_threads_sleep(argc, argv);
  // A closed pipe and a file that may not grow are errors of a write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  ballast::explain_lost_mappings(ballast::cli::kUserMistake);
  try {
    return ballast::cli::run(argc, argv);
  } catch (const std::exception&) {
    return ballast::cli::complain_of_exception();
  }
}
