// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ballast/system/argument_pointers.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "cli/child_process.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

fs::path program_path() {
  return fs::read_symlink("/proc/self/exe").replace_filename("ballast-bench");
}

[[noreturn]] void fail_to_start(const std::string& why) {
  fail("cannot start {}, which measures: {}. It is built and packed with this program",
       program_path().string(), why);
}

// Becomes ballast-bench, with the options of this program and what stands behind `bench`: its exit
// code is ours, and signals reach it.
int become_bench(const CLI::App& app, const std::vector<std::string>& rest) {
  std::vector<std::string> words = {program_path().string()};
  if (app.count("--quiet") > 0) words.emplace_back("--quiet");
  if (app.count("--log") > 0) words.push_back("--log=" + app["--log"]->as<std::string>());
  words.insert(words.end(), rest.begin(), rest.end());
  const std::vector<char*> arguments = argument_pointers(words);
  let_waiting_threads_sleep();
  ::execv(arguments.front(), arguments.data());
  fail_to_start(std::strerror(errno));
}

DeclaredCommand declarations_of_bench() {
  if (!fs::exists(program_path())) fail_to_start("it is not there");
  let_waiting_threads_sleep();
  ChildProcess bench({program_path().string(), "declarations"}, ".");
  return declared_command(parse_json(bench.read_line()));
}

}  // namespace

DeclaredCommand declarations_with_bench(const CLI::App& app) {
  DeclaredCommand program = declarations_of(app);
  const DeclaredCommand bench = declarations_of_bench();
  std::ranges::replace_if(
      program.commands, [&](const DeclaredCommand& command) { return command.name == bench.name; },
      bench);
  return program;
}

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, beside a peer where there is one");
  command->set_help_flag();  // that is ballast-bench's too
  command->prefix_command();
  command->callback([&app, command, &chosen] {
    chosen = [&app, command] { return become_bench(app, command->remaining()); };
  });
}

}  // namespace ballast::cli
