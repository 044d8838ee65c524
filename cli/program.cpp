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
#include <filesystem>
#include <fstream>

#include "ballast/config/config.h"
#include "ballast/system/mapped_ranges.h"
#include "ballast/system/version.h"
#include "cli/complaint.h"

namespace ballast::cli {
namespace {

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
                       name, config::nearest(name, names), full_name(command));
  }
  if (command->get_subcommands([](const CLI::App*) { return true; }).empty()) {
    return fmt::format("\"{}\" is more than {} takes", word, command->get_name());
  }
  std::vector<std::string> commands;
  for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(sub->get_name());
  return fmt::format("there is no command \"{}\"; the nearest is {}", word,
                     config::nearest(word, commands));
}

int run(const Program& program, int argc, char** argv) {
  CLI::App app(program.about, program.name);
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  Action chosen;
  program.add_commands(app, chosen);
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
// written into. What stands there instead refuses to be read (stdin) or written (stdout).
void fill_closed_streams() {
  constexpr std::array kModes = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = 0; stream < std::ssize(kModes); ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", kModes[static_cast<size_t>(stream)]);
  }
}

}  // namespace

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

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
  if (program.computes(argc > 1 ? argv[1] : "") && let_waiting_threads_sleep())
    ::execv("/proc/self/exe", argv);
  // A closed pipe and a file that may not grow are errors of a write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  explain_lost_mappings(kUserMistake);
  try {
    return run(program, argc, argv);
  } catch (const std::exception&) {
    return complain_of_exception();
  }
}

}  // namespace ballast::cli
