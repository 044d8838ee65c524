// SPDX-License-Identifier: Apache-2.0
#include "cli/declarations.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "cli/help.h"

namespace ballast::cli {
namespace {

using nlohmann::json;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// "a|b" are choices, "NAME|PATH" are kinds of values.
bool is_choice(const std::string& word) {
  return !word.empty() && std::ranges::none_of(word, [](unsigned char c) {
    return std::isupper(c) != 0 || std::isspace(c) != 0;
  });
}

// CLI11 tells the members of a set as a part of the type, "TEXT:{auto,never}"; knobs have the type
// "auto|never".
void take_type(DeclaredOption& option, const std::string& type) {
  const size_t begin = type.find(":{"), end = type.find('}');
  if (begin != std::string::npos && end != std::string::npos) {
    option.choices = split(type.substr(begin + 2, end - begin - 2), ',');
    option.type = type.substr(0, begin) + type.substr(end + 1);
    return;
  }
  option.type = type.substr(0, type.find(':'));
  const std::vector<std::string> words = split(option.type, '|');
  if (words.size() > 1 && std::ranges::all_of(words, is_choice)) option.choices = words;
}

DeclaredOption declared(const CLI::Option& option) {
  DeclaredOption made;
  for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  if (option.get_positional()) made.positional = option.get_name(/*positional=*/true);
  made.takes_value = option.get_type_size() != 0;
  if (made.takes_value) take_type(made, option.get_type_name());
  made.default_value = option.get_default_str();
  made.help = option.get_description();
  made.group = option.get_group();
  made.is_required = option.get_required();
  made.repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return made;
}

DeclaredCommand declared(const CLI::App& app) {
  DeclaredCommand made{full_name(app), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) made.options.push_back(declared(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) made.commands.push_back(declared(*command));
  }
  return made;
}

// `help` takes the names of all others.
void offer_commands(DeclaredCommand& program) {
  for (DeclaredCommand& command : program.commands) {
    if (command.own_name() != "help") continue;
    const auto names = std::ranges::find(command.options, "COMMAND", &DeclaredOption::positional);
    for (const DeclaredCommand& other : program.commands)
      names->choices.push_back(other.own_name());
  }
}

json option_json(const DeclaredOption& option) {
  return {{"names", option.names},
          {"positional", option.positional},
          {"type", option.type},
          {"default", option.default_value},
          {"help", option.help},
          {"group", option.group},
          {"choices", option.choices},
          {"takes_value", option.takes_value},
          {"required", option.is_required},
          {"repeats", option.repeats}};
}

DeclaredOption declared_option(const json& option) {
  return {option.at("names"),   option.at("positional"),  option.at("type"),
          option.at("default"), option.at("help"),        option.at("group"),
          option.at("choices"), option.at("takes_value"), option.at("required"),
          option.at("repeats")};
}

}  // namespace

Offer DeclaredOption::offer() const {
  const auto has = [&](const char* word) { return type.find(word) != std::string::npos; };
  if (type == "DIR" || type == "FOLDER") return Offer::kFolders;
  const bool may_be_file = has("FILE") || has("PATH") || has("MODEL") || has("INPUT") ||
                           has("TEXT") || type == "text" || type == "list" || type.empty();
  return takes_value && may_be_file ? Offer::kFiles : Offer::kNothing;
}

std::string DeclaredCommand::own_name() const { return name.substr(name.rfind(' ') + 1); }

DeclaredCommand declarations_of(const CLI::App& app) {
  DeclaredCommand program = declared(app);
  offer_commands(program);
  return program;
}

json to_json(const DeclaredCommand& command) {
  json options = json::array(), commands = json::array();
  for (const DeclaredOption& option : command.options) options.push_back(option_json(option));
  for (const DeclaredCommand& other : command.commands) commands.push_back(to_json(other));
  return {{"name", command.name},
          {"about", command.about},
          {"footer", command.footer},
          {"options", options},
          {"commands", commands}};
}

DeclaredCommand declared_command(const json& json) {
  DeclaredCommand made{json.at("name"), json.at("about"), json.at("footer"), {}, {}};
  for (const auto& option : json.at("options")) made.options.push_back(declared_option(option));
  for (const auto& command : json.at("commands"))
    made.commands.push_back(declared_command(command));
  return made;
}

void add_declarations(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("declarations", "Print what commands declare, as JSON");
  command->group("");
  command->callback([&app, &chosen] {
    chosen = [&app] {
      fmt::print("{}\n", to_json(declarations_of(app)).dump());
      return 0;
    };
  });
}

}  // namespace ballast::cli
