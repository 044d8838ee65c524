// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <toml++/toml.h>

#include <set>

#include "ballast/config/config.h"
#include "ballast/config/knobs.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast {
namespace {

// A TOML value as the text set_knob takes, so that both ways in share one parser and its checks.
std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  fail("{}: want a plain value", where);
}

void set_from_node(Config& config, const std::string& key, const toml::node& node,
                   const std::string& where) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return set_knob(config, key, scalar_text(node, where));
  for (const Knob& knob : knobs(config)) {
    if (knob.name() != key) continue;
    auto* const* list = std::get_if<std::vector<std::string>*>(&knob.target);
    if (list == nullptr) fail("{}: want one value, got a list", where);
    (*list)->clear();
    for (const toml::node& item : *array) (*list)->push_back(scalar_text(item, where));
    return;
  }
  set_knob(config, key, "");  // no such key: refuses it, naming the nearest
}

std::string toml_text(const Knob& knob) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
      if (c == '"' || c == '\\') {
        out += fmt::format("\\{}", c);
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
    }
    return out + "\"";
  };
  return std::visit(
      [&](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return quoted(*value);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          std::vector<std::string> items;
          for (const std::string& item : *value) items.push_back(quoted(item));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else {
          return fmt::format("{}", *value);
        }
      },
      knob.target);
}

}  // namespace

void read_config_text(Config& config, const std::string& text, const std::string& origin) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail("{}, line {}: {}", origin, error.source().begin.line, error.description());
  }
  std::set<std::string> sections;
  for (const Knob& knob : knobs(config)) sections.insert(knob.section);
  for (const auto& [section, node] : table) {
    const std::string name(section.str());
    const toml::table* keys = node.as_table();
    if (keys == nullptr || !sections.contains(name)) {
      fail("{}, line {}: there is no section [{}]; the nearest is [{}]", origin,
           node.source().begin.line, name, nearest(name, {sections.begin(), sections.end()}));
    }
    for (const auto& [key, value] : *keys) {
      const std::string full = name + "." + std::string(key.str());
      const std::string where = fmt::format("{}, line {}", origin, value.source().begin.line);
      try {
        set_from_node(config, full, value, full);
      } catch (const UserError& error) {
        fail("{}: {}", where, error.what());
      }
    }
  }
}

void read_config_file(Config& config, const std::string& path) {
  read_config_text(config, read_text(path), path);
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out, section;
  for (const Knob& knob : knobs(copy)) {
    if (knob.section != section) {
      section = knob.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}  # {}\n", knob.key, toml_text(knob), knob.help);
  }
  return out;
}

std::vector<KnobHelp> knob_help() {
  Config defaults;
  std::vector<KnobHelp> list;
  const char* const types[] = {"int", "number", "true|false", "text", "list"};
  for (const Knob& knob : knobs(defaults)) {
    const std::string type = knob.choices.empty() ? types[knob.target.index()]
                                                  : fmt::format("{}", fmt::join(knob.choices, "|"));
    list.push_back(
        {knob.section, knob.key, knob.is_duration ? "time" : type, knob.help, toml_text(knob)});
  }
  return list;
}

}  // namespace ballast
