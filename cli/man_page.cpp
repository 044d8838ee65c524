// SPDX-License-Identifier: Apache-2.0
#include "cli/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ballast/system/version.h"
#include "cli/completion.h"

namespace ballast::cli {
namespace {

// Troff's own characters, and those that it would replace by typographic ones.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '\'':
        result += "\\(aq";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '"':
        result += "\\(dq";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// Where a line starts with a dot, it would be a request.
std::string text_line(const std::string& line) {
  return fmt::format("{}{}\n", line.starts_with(".") ? "\\&" : "", escaped(line));
}

std::string bold(const std::string& text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(const std::string& text) { return fmt::format("\\fI{}\\fR", escaped(text)); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  lines.erase(lines.begin(),
              std::ranges::find_if(lines, [](const std::string& line) { return !line.empty(); }));
  return lines;
}

// Lines as they are.
std::string verbatim(const std::string& text) {
  std::string result = ".nf\n";
  for (const std::string& line : lines_of(text)) result += line.empty() ? ".sp\n" : text_line(line);
  return result + ".fi\n";
}

std::string section(const std::string& name) { return fmt::format(".SH {}\n", name); }

// "CONFIG", or "INPUT ...", as help has it.
std::string positional_text(const DeclaredOption& option) {
  const std::string name = italic(option.positional) + (option.repeats ? " ..." : "");
  return option.is_required ? name : fmt::format("[{}]", name);
}

std::string synopsis(const DeclaredCommand& command) {
  std::string text = fmt::format("{}.B {}\n", section("SYNOPSIS"), escaped(command.name));
  text += fmt::format("[{}]", italic("OPTIONS"));
  for (const DeclaredOption& option : command.options) {
    if (!option.positional.empty()) text += fmt::format(" {}", positional_text(option));
  }
  if (!command.commands.empty()) text += fmt::format(" {}", italic("COMMAND"));
  return text + "\n";
}

// The names and the value of an option, and what it says.
std::string option_entry(const DeclaredOption& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(bold(name));
  if (names.empty()) names.push_back(italic(option.positional));
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  const std::string type =
      option.choices.empty() ? option.type : fmt::format("{}", fmt::join(option.choices, "|"));
  if (option.takes_value && !option.names.empty() && !type.empty())
    head += fmt::format(" {}", italic(type));
  if (option.repeats && type.find("...") == std::string::npos) head += " ...";
  std::string text = fmt::format(".TP\n{}\n{}", head, text_line(option.help));
  if (!option.default_value.empty()) text += text_line(fmt::format("[{}]", option.default_value));
  return text;
}

// In the order in which the groups come first.
std::string options(const DeclaredCommand& command) {
  std::vector<std::string> groups;
  for (const DeclaredOption& option : command.options) {
    if (std::ranges::count(groups, option.group) == 0) groups.push_back(option.group);
  }
  std::string text = section("OPTIONS");
  for (const std::string& group : groups) {
    if (groups.size() > 1) text += fmt::format(".SS \"{}\"\n", escaped(group));
    for (const DeclaredOption& option : command.options) {
      if (option.group == group) text += option_entry(option);
    }
  }
  return text;
}

std::string commands(const DeclaredCommand& command) {
  if (command.commands.empty()) return "";
  std::string text = section("COMMANDS");
  for (const DeclaredCommand& other : command.commands)
    text += fmt::format(".TP\n{}\n{}", bold(other.own_name()), text_line(other.about));
  return text;
}

std::string see_also(const DeclaredCommand& command, const DeclaredCommand& program) {
  std::vector<std::string> pages;
  const auto add = [&](const DeclaredCommand& other) {
    pages.push_back(bold(page_name(other)) + "(1)");
  };
  if (command.name != program.name) add(program);
  for (const DeclaredCommand& other : command.commands) add(other);
  return section("SEE ALSO") + fmt::format("{}\n", fmt::join(pages, ",\n"));
}

}  // namespace

std::string page_name(const DeclaredCommand& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const DeclaredCommand& command, const DeclaredCommand& program) {
  std::string title = page_name(command);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::vector<std::string> about = lines_of(command.about);
  std::string text =
      fmt::format(".\\\" Written by `ballast man`.\n.TH \"{}\" 1 \"\" \"ballast {}\" \"Ballast\"\n",
                  escaped(title), escaped(version()));
  text += section("NAME") +
          fmt::format("{} \\- {}\n", escaped(page_name(command)), escaped(about.front()));
  text += synopsis(command);
  if (about.size() > 1) text += section("DESCRIPTION") + verbatim(command.about);
  text += commands(command) + options(command);
  if (!command.footer.empty()) text += section("NOTES AND EXAMPLES") + verbatim(command.footer);
  return text + see_also(command, program);
}

}  // namespace ballast::cli
