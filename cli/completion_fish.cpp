// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.h"

namespace ballast::cli {
namespace {

constexpr const char* kStart =
    R"(# Completion of ballast for fish, written by `ballast completion fish`.
function __ballast_command
  set -l known {}
  set -l command ballast
  for word in (commandline -opc)[2..-1]
    if contains -- "$command $word" $known
      set command "$command $word"
    end
  end
  echo $command
end

complete -c ballast -f
)";

// In fish's single quotes a backslash stands before quotes and backslashes.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string value_of(const DeclaredOption& option) {
  if (!option.takes_value) return "";
  if (!option.choices.empty())
    return fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
  switch (option.offer()) {
    case Offer::kFiles:
      return " -r -F";
    case Offer::kFolders:
      return " -x -a '(__fish_complete_directories (commandline -ct))'";
    case Offer::kNothing:
      break;
  }
  return " -x";
}

std::string names_of(const DeclaredOption& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return names;
}

std::string lines_of(const DeclaredCommand& command) {
  const std::string start = fmt::format(
      "complete -c ballast -n {}",
      fish_quoted(fmt::format("test (__ballast_command) = {}", fish_quoted(command.name))));
  std::string lines;
  for (const DeclaredCommand& other : command.commands)
    lines += fmt::format("{} -a {} -d {}\n", start, other.own_name(),
                         fish_quoted(short_help(other.about)));
  for (const DeclaredOption& option : command.options) {
    if (option.names.empty()) continue;
    lines += fmt::format("{}{}{} -d {}\n", start, names_of(option), value_of(option),
                         fish_quoted(short_help(option.help)));
  }
  if (!command.commands.empty()) return lines;
  const OfferedWords offered = offered_words(command);
  if (!offered.words.empty())
    lines += fmt::format("{} -a {}\n", start,
                         fish_quoted(fmt::format("{}", fmt::join(offered.words, " "))));
  if (offered.offer != Offer::kNothing) lines += start + " -F\n";
  return lines;
}

}  // namespace

std::string fish_completion(const DeclaredCommand& program) {
  std::vector<std::string> known;
  std::string lines;
  for (const DeclaredCommand* command : all_commands(program)) {
    if (command != &program) known.push_back(fish_quoted(command->name));
    lines += lines_of(*command);
  }
  return fmt::format(fmt::runtime(kStart), fmt::join(known, " ")) + lines;
}

}  // namespace ballast::cli
