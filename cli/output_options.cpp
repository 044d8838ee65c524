// SPDX-License-Identifier: Apache-2.0
#include "cli/output_options.h"

#include <CLI/CLI.hpp>

#include "ballast/system/console.h"
#include "cli/command_words.h"

namespace ballast::cli {
namespace {

constexpr const char *kQuiet = "--quiet", *kLog = "--log";

}  // namespace

void OutputOptions::apply() const { set_console({.quiet = quiet, .log = log}); }

void add_output_options(CLI::App& app, OutputOptions& options) {
  app.add_flag(kQuiet, options.quiet,
               "say nothing on stderr but warnings and errors; results are printed as ever");
  app.add_option(kLog, options.log,
                 "also add all that is said on stderr to this file, each line with its time (UTC); "
                 "with --quiet what that leaves out, too")
      ->type_name("FILE");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_prefix_command()) add_output_options(*command, options);
  }
}

bool is_output_option(const std::string& name) { return name == kQuiet || name == kLog; }

size_t place_of_command(const std::vector<std::string>& words) {
  size_t place = 1;
  while (place < words.size() && words[place].starts_with("-"))
    place += words[place] == kLog ? 2 : 1;
  return std::min(place, words.size());
}

void remove_output_options(std::vector<std::string>& words) {
  remove_option(words, kQuiet, Takes::kNothing);
  remove_option(words, kLog, Takes::kValue);
}

}  // namespace ballast::cli
