// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include "ballast/config/nearest.h"
#include "ballast/system/last_words.h"
#include "ballast/system/mapped_ranges.h"
#include "ballast/system/version.h"
#include "cli/complaint.h"
#include "cli/help.h"
#include "cli/help_formatter.h"
#include "cli/output_options.h"

namespace ballast::cli {
namespace {

// The innermost subcommand that was reached, which knows the options that were possible.
const CLI::App& reached(const CLI::App& app) {
  return app.get_subcommands().empty() ? app : reached(*app.get_subcommands().front());
}

// What CLI11 could not place: names a near option or command.
std::string explain_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const CLI::App& command = reached(app);
  const std::string& word = extras.front();
  if (word.starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("there is no option {}{} (`{} --help` lists them all)", name,
                       config::nearest_is(name, names), full_name(command));
  }
  if (command_names(command).empty())
    return fmt::format("\"{}\" is more than {} takes", word, command.get_name());
  return no_such_command(command, word);
}

// The exit code of a command line that chooses nothing: a mistake, or --help and --version.
int end_of_parsing(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return with_output_written(app.exit(error));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return complain(explain_extras(app, app.remaining(true)), kUserMistake);
  return complain(fmt::format("{} (`{} --help` tells more)", error.what(), full_name(reached(app))),
                  kUserMistake);
}

int run(const Program& program, int argc, char** argv) {
  CLI::App app(program.about, program.name);
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  app.formatter(std::make_shared<HelpFormatter>());
  Action chosen;
  OutputOptions output;
  program.add_commands(app, chosen);
  add_help(app, chosen);
  add_output_options(app, output);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    output.apply();
    return end_of_parsing(app, error);
  }
  output.apply();
  if (!chosen) {
    fmt::print("{}", app.help());
    return with_output_written(argc > 1 ? kUserMistake : 0);
  }
  const Action action = std::exchange(chosen, {});  // `help` may choose once more
  return with_output_written(action());
}

// Where a standard stream is closed, the next file that is opened would take its place, and be
// written into. What stands there instead refuses to be read (stdin) or written (stdout).
void fill_closed_streams() {
  constexpr std::array kModes = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = 0; stream < std::ssize(kModes); ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", kModes[static_cast<size_t>(stream)]);
  }
}

}  // namespace

// By default they spin for milliseconds: on a machine that does anything else meanwhile, one takes
// the core of the other it waits for, and a small model's step takes several times as long.
bool let_waiting_threads_sleep() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr)
    return false;
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  return true;
}

int run_program(const Program& program, int argc, char** argv) {
  fill_closed_streams();
  // OpenMP reads it when it is loaded: hence the new start. Where that fails, we go on as we are.
  const std::vector<std::string> words(argv, argv + argc);
  const size_t command = place_of_command(words);
  if (program.computes(command < words.size() ? words[command] : "") && let_waiting_threads_sleep())
    ::execv("/proc/self/exe", argv);
  // A closed pipe and a file that may not grow are errors of a write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  explain_lost_mappings(kUserMistake);
  explain_crashes();
  try {
    return run(program, argc, argv);
  } catch (const std::exception&) {
    return complain_of_exception();
  }
}

}  // namespace ballast::cli
