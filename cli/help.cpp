// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "ballast/config/nearest.h"
#include "ballast/system/error.h"
#include "cli/command.h"

namespace ballast::cli {
namespace {

constexpr const char* kName = "help";
constexpr const char* kExamples = R"(
Examples
  ballast help               the commands there are
  ballast help train         as `ballast train --help`
  ballast help bench step    of a command that has commands itself
)";

// A command whose words are for another program (prefix_command) is asked for its help there.
int help_elsewhere(CLI::App& root, Action& chosen, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  root.parse(words);
  const Action action = std::exchange(chosen, {});
  return action();
}

int print_help(CLI::App& root, Action& chosen, const std::vector<std::string>& words) {
  CLI::App* app = &root;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto is_it = [&](const CLI::App* command) { return command->get_name() == words[i]; };
    const std::vector<CLI::App*> found = app->get_subcommands(is_it);
    if (found.empty()) fail("{}", no_such_command(*app, words[i]));
    app = found.front();
    if (app->get_prefix_command()) {
      std::vector<std::string> rest = words;
      rest.insert(rest.begin() + static_cast<long>(i) + 1, kName);
      return help_elsewhere(root, chosen, rest);
    }
  }
  root.clear();  // else help would be about the command that was given, this one
  fmt::print("{}", app->help(app == &root ? "" : full_name(*app->get_parent())));
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Action& chosen) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      add_command(app, kName, "Show all that a command can do, with examples", kExamples);
  command->add_option("COMMAND", *words, "the command; without one, all are listed")->type_name("");
  command->callback([&app, words, &chosen] {
    chosen = [&app, words, &chosen] { return print_help(app, chosen, *words); };
  });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::string no_such_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  if (names.empty()) return fmt::format("{} has no commands, such as \"{}\"", full_name(app), word);
  return fmt::format("there is no command \"{}\"{} (`{} --help` lists them all)", word,
                     config::nearest_is(word, names), full_name(app));
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

}  // namespace ballast::cli
