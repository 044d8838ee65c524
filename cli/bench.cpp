// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>

#include "ballast/system/error.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

// Becomes ballast-bench, with what stands behind `bench`: its exit code is ours, and signals reach
// it.
int become_bench() {
  std::vector<std::string> words = own_command_line();
  words.front() = std::filesystem::path(words.front()).replace_filename("ballast-bench").string();
  words.erase(words.begin() + 1);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  let_waiting_threads_sleep();
  ::execv(arguments.front(), arguments.data());
  fail("cannot start {}, which measures: {}. It is built and packed with this program",
       words.front(), std::strerror(errno));
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, beside a peer where there is one");
  command->set_help_flag();  // that is ballast-bench's too
  command->prefix_command();
  command->callback([&chosen] { chosen = become_bench; });
}

}  // namespace ballast::cli
