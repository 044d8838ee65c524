// SPDX-License-Identifier: Apache-2.0
#include "cli/help_formatter.h"

#include <string_view>

namespace ballast::cli {
namespace {

constexpr size_t kIndent = 34, kColumns = 100;

// Where to end a line that is too long: after a space, or between the choices of a value.
size_t end_of_line(std::string_view line) {
  for (const char* at : {" ", "|,"}) {
    const size_t found = line.find_last_of(at, at[0] == ' ' ? kColumns : kColumns - 1);
    if (found != std::string_view::npos && found > kIndent) return found + 1;
  }
  return line.size();
}

// What CLI11 made of an option, with line ends; what follows one stands below the help texts.
std::string wrapped(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    while (line.size() > kColumns) {
      const size_t cut = end_of_line(line);
      if (cut == line.size()) break;
      const std::string first = line.substr(0, cut);
      result += first.substr(0, first.find_last_not_of(' ') + 1) + "\n";
      line = std::string(kIndent, ' ') + line.substr(cut);
    }
    result += line + "\n";
    begin = end + 1;
  }
  return result;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kIndent); }

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return wrapped(CLI::Formatter::make_option(option, is_positional));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return wrapped(CLI::Formatter::make_subcommand(command));
}

}  // namespace ballast::cli
