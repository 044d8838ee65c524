// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "cli/completion.h"

namespace ballast::cli {
namespace {

// Bash splits "--option=value" into three words, as long as "=" is one of its COMP_WORDBREAKS.
constexpr const char* kStart =
    R"(# Completion of ballast for bash, written by `ballast completion bash`.
_ballast_files() {
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$2")
}

_ballast_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }

_ballast() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=ballast i
  local joined=
  if [[ $word == '=' ]]; then
    word=
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $word == --*=* ]]; then
    before=${word%%=*} joined=${word%%=*}= word=${word#*=}
  fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
)";

// `-o nospace` would be needed for `joined`, which is empty in nearly every bash.
constexpr const char* kEnd = R"(  esac
  if [[ -n $joined ]]; then COMPREPLY=("${COMPREPLY[@]/#/$joined}"); fi
}

complete -F _ballast ballast
)";

const char* flag_of(Offer offer) { return offer == Offer::kFolders ? "-d" : "-f"; }

// What completes the value of each option that takes one.
std::string value_cases(const DeclaredCommand& command) {
  std::map<std::string, std::vector<std::string>> options;  // by what is done
  for (const DeclaredOption& option : command.options) {
    if (!option.takes_value || option.names.empty()) continue;
    std::string action = ":";
    if (!option.choices.empty()) {
      action = fmt::format("_ballast_words {} \"$word\"",
                           shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    } else if (option.offer() != Offer::kNothing) {
      action = fmt::format("_ballast_files {} \"$word\"", flag_of(option.offer()));
    }
    std::vector<std::string>& names = options[action];
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  std::string cases;
  for (const auto& [action, names] : options)
    cases += fmt::format("        {}) {} ;;\n", fmt::join(names, "|"), action);
  return cases;
}

std::string case_of(const DeclaredCommand& command) {
  std::vector<std::string> names;
  for (const DeclaredOption& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  const OfferedWords offered = offered_words(command);
  std::string words = ":";
  if (!offered.words.empty()) {
    words = fmt::format("_ballast_words {} \"$word\"",
                        shell_quoted(fmt::format("{}", fmt::join(offered.words, " "))));
  } else if (offered.offer != Offer::kNothing) {
    words = fmt::format("_ballast_files {} \"$word\"", flag_of(offered.offer));
  }
  return fmt::format(R"(    {})
      case "$before" in
{}        *)
          if [[ $word == -* ]]; then
            _ballast_words {} "$word"
          else
            {}
          fi
          ;;
      esac
      ;;
)",
                     shell_quoted(command.name), value_cases(command),
                     shell_quoted(fmt::format("{}", fmt::join(names, " "))), words);
}

}  // namespace

std::string bash_completion(const DeclaredCommand& program) {
  std::vector<std::string> names;
  std::string cases;
  for (const DeclaredCommand* command : all_commands(program)) {
    if (command != &program) names.push_back(shell_quoted(command->name));
    cases += case_of(*command);
  }
  return fmt::format(
      "{}      {}) command=\"$command ${{COMP_WORDS[i]}}\" ;;\n    esac\n  done\n  case "
      "\"$command\" "
      "in\n{}{}",
      kStart, fmt::join(names, "|"), cases, kEnd);
}

}  // namespace ballast::cli
