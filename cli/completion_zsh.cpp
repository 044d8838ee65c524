// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/completion.h"

namespace ballast::cli {
namespace {

// "ballast bench step" has the function _ballast_bench_step.
std::string function_of(const DeclaredCommand& command) {
  std::string name = "_" + command.name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

// Within a specification of _arguments, brackets and colons mean something.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string action_of(const std::vector<std::string>& choices, Offer offer) {
  if (!choices.empty()) return fmt::format("({})", fmt::join(choices, " "));
  if (offer == Offer::kNothing) return " ";
  return offer == Offer::kFolders ? "_files -/" : "_files";
}

// "'--resume=[go on]:NAME:(auto never)'", one for each name.
void add_option(const DeclaredOption& option, std::vector<std::string>& specifications) {
  for (const std::string& name : option.names) {
    std::string text = option.repeats ? "*" + name : name;
    if (option.takes_value && name.starts_with("--")) text += "=";
    text += fmt::format("[{}]", escaped(short_help(option.help)));
    if (option.takes_value)
      text +=
          fmt::format(":{}:{}", escaped(option.type), action_of(option.choices, option.offer()));
    specifications.push_back(shell_quoted(text));
  }
}

std::vector<std::string> specifications_of(const DeclaredCommand& command) {
  std::vector<std::string> list;
  for (const DeclaredOption& option : command.options) add_option(option, list);
  const OfferedWords offered = offered_words(command);
  if (command.commands.empty() && (!offered.words.empty() || offered.offer != Offer::kNothing))
    list.push_back(shell_quoted("*: :" + action_of(offered.words, offered.offer)));
  return list;
}

// Of a command that has commands: first one of them, then what that takes.
std::string function_with_commands(const DeclaredCommand& command) {
  std::vector<std::string> list = specifications_of(command), described, cases;
  list.insert(list.end(), {shell_quoted("1: :->command"), shell_quoted("*:: :->rest")});
  for (const DeclaredCommand& other : command.commands) {
    described.push_back(shell_quoted(other.own_name() + ":" + short_help(other.about)));
    cases.push_back(fmt::format("        {}) {} ;;", other.own_name(), function_of(other)));
  }
  return fmt::format(R"({}() {{
  local curcontext=$curcontext state state_descr line
  local -a commands
  typeset -A opt_args
  commands=(
    {}
  )
  _arguments -C \
    {}
  case $state in
    command) _describe command commands ;;
    rest)
      case $words[1] in
{}
      esac
      ;;
  esac
}}

)",
                     function_of(command), fmt::join(described, "\n    "),
                     fmt::join(list, " \\\n    "), fmt::join(cases, "\n"));
}

}  // namespace

std::string zsh_completion(const DeclaredCommand& program) {
  std::string text =
      "#compdef ballast\n# Completion of ballast for zsh, written by `ballast completion zsh`.\n\n";
  for (const DeclaredCommand* command : all_commands(program)) {
    text += command->commands.empty()
                ? fmt::format("{}() {{\n  _arguments \\\n    {}\n}}\n\n", function_of(*command),
                              fmt::join(specifications_of(*command), " \\\n    "))
                : function_with_commands(*command);
  }
  // Found by its name in the fpath, it is called; sourced, it is made known.
  return text +
         "if [[ $funcstack[1] == _ballast ]]; then\n  _ballast \"$@\"\nelse\n  compdef _ballast "
         "ballast\nfi\n";
}

}  // namespace ballast::cli
