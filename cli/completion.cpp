// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  For this shell:
    source <(ballast completion bash)
    source <(ballast completion zsh)
    ballast completion fish | source
  For every new one:
    mkdir -p ~/.local/share/bash-completion/completions
    ballast completion bash > ~/.local/share/bash-completion/completions/ballast
    ballast completion zsh > ~/.zfunc/_ballast     # ~/.zshrc: fpath+=~/.zfunc before compinit
    ballast completion fish > ~/.config/fish/completions/ballast.fish
)";

void collect(const DeclaredCommand& command, std::vector<const DeclaredCommand*>& list) {
  list.push_back(&command);
  for (const DeclaredCommand& other : command.commands) collect(other, list);
}

}  // namespace

std::vector<const DeclaredCommand*> all_commands(const DeclaredCommand& program) {
  std::vector<const DeclaredCommand*> list;
  collect(program, list);
  return list;
}

OfferedWords offered_words(const DeclaredCommand& command) {
  OfferedWords offered;
  for (const DeclaredCommand& other : command.commands) offered.words.push_back(other.own_name());
  for (const DeclaredOption& option : command.options) {
    if (option.positional.empty()) continue;
    offered.words.insert(offered.words.end(), option.choices.begin(), option.choices.end());
    if (option.choices.empty() && offered.offer == Offer::kNothing) offered.offer = option.offer();
  }
  return offered;
}

std::string short_help(const std::string& help) {
  constexpr size_t kLongest = 100;
  const std::string line = help.substr(0, help.find('\n'));
  if (line.size() <= kLongest) return line;
  const size_t end = line.find_last_of(' ', kLongest);
  return line.substr(0, end == std::string::npos ? kLongest : end) + " ...";
}

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) c == '\'' ? result += "'\\''" : result += c;
  return result + "'";
}

void add_completion(CLI::App& app, Action& chosen) {
  CLI::App* command = add_command(
      app, "completion",
      "Print a script by which your shell completes what you type behind ballast", kExamples);
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "the shell that is to read it")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("NAME")
      ->required();
  command->callback([&app, shell, &chosen] {
    chosen = [&app, shell] {
      const DeclaredCommand program = declarations_with_bench(app);
      fmt::print("{}", *shell == "bash"  ? bash_completion(program)
                       : *shell == "zsh" ? zsh_completion(program)
                                         : fish_completion(program));
      return 0;
    };
  });
}

}  // namespace ballast::cli
