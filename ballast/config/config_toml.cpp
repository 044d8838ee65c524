// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "ballast/config/config.h"
#include "ballast/config/knobs.h"
#include "ballast/config/nearest.h"
#include "ballast/config/shape_toml.h"
#include "ballast/config/toml_bounds.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast::config {
namespace {

// A TOML value as the text set_knob takes, so that both ways in share one parser and its checks.
std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  fail("{}: want a plain value", where);
}

void set_from_node(const std::vector<Knob>& all, const std::string& key, const toml::node& node,
                   const std::string& where) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return set_knob(all, key, scalar_text(node, where));
  for (const Knob& knob : all) {
    if (!knob.is_named(key)) continue;
    auto* const* list = std::get_if<std::vector<std::string>*>(&knob.target);
    if (list == nullptr) fail("{}: want one value, got a list", where);
    (*list)->clear();
    for (const toml::node& item : *array) (*list)->push_back(scalar_text(item, where));
    return;
  }
  set_knob(all, key, "");  // no such key: refuses it, naming the nearest
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
      [&](const auto& value) -> std::string {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Knob::Choice>) {
          return quoted(knob.choices[value.get()]);
        } else if constexpr (std::is_same_v<T, std::string*>) {
          return quoted(*value);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>*>) {
          std::vector<std::string> items;
          for (const std::string& item : *value) items.push_back(quoted(item));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else {
          return fmt::format("{}", *value);
        }
      },
      knob.target);
}

// Where sections were read.
struct Origin {
  const std::string& file;
  std::string prefix;  // of their names: "", or "gpu."

  std::string line(const toml::node& node) const {
    return fmt::format("{}, line {}", file, node.source().begin.line);
  }
};

// Scales that have sections of their own: all but the first.
std::vector<std::string> smaller_scales() {
  const std::vector<std::string> names = scale_names();
  return {names.begin() + 1, names.end()};
}

// What stands where a section should: the section's name with a value, or a key outside of it.
[[noreturn]] void refuse_value(Config& config, const std::string& name, const std::string& line) {
  const std::string key = name.substr(name.rfind('.') + 1),
                    prefix = name.substr(0, name.size() - key.size());
  for (const Knob& knob : knobs(config)) {
    if (knob.section == key)
      fail("{}: {} is a section and takes no value itself: write [{}], and its keys below", line,
           name, name);
  }
  for (const Knob& knob : knobs(config)) {
    if (knob.key == key)
      fail("{}: {} stands outside of a section: it belongs below [{}{}]", line, name, prefix,
           knob.section);
  }
  fail("{}: {} stands outside of a section, and no section has such a key", line, name);
}

// All sections of a table but those of other scales.
void read_sections(Config& config, const toml::table& table, const Origin& origin) {
  const std::vector<Knob> all = knobs(config);
  std::vector<std::string> sections, scales;
  for (const Knob& knob : all) sections.push_back(origin.prefix + knob.section);
  if (origin.prefix.empty()) scales = smaller_scales();
  for (const auto& [section, node] : table) {
    const std::string name = origin.prefix + std::string(section.str());
    if (std::ranges::count(scales, name) > 0) continue;
    const toml::table* keys = node.as_table();
    if (keys == nullptr) refuse_value(config, name, origin.line(node));
    if (std::ranges::count(sections, name) == 0) {
      sections.insert(sections.end(), scales.begin(), scales.end());
      fail("{}: there is no section [{}]{} (`ballast train --print-config` shows them all)",
           origin.line(node), name, nearest_is(name, sections, "[{}]"));
    }
    for (const auto& [key, value] : *keys) {
      const std::string full = fmt::format("{}.{}", section.str(), key.str());
      try {
        set_from_node(all, full, value, full);
      } catch (const UserError& error) {
        fail("{}: {}", origin.line(value), error.what());
      }
    }
  }
}

void read_scale(Config& config, const toml::node& node, const Origin& origin) {
  if (!node.is_table())
    fail("{}: want sections such as [{}model]", origin.line(node), origin.prefix);
  read_sections(config, *node.as_table(), origin);
}

}  // namespace

std::vector<std::string> scale_names() { return {"paper", "gpu", "laptop"}; }

void read_config_text(Config& config, const std::string& text, const std::string& origin,
                      const std::string& scale) {
  const std::vector<std::string> scales = scale_names();
  if (std::ranges::count(scales, scale) == 0)
    fail("scale: want one of {}, got \"{}\"", fmt::join(scales, ", "), scale);
  check_toml_bounds(text, origin);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail("{}, line {}: {}", origin, error.source().begin.line, error.description());
  }
  std::vector<std::string> there = {scales.front()};
  for (const std::string& name : smaller_scales())
    if (table.contains(name)) there.push_back(name);
  if (std::ranges::count(there, scale) == 0) {
    fail("{}: it has no sections for scale {}, such as [{}.model]; it has: {}", origin, scale,
         scale, fmt::join(there, ", "));
  }
  read_sections(config, table, {origin, ""});
  for (auto it = there.begin() + 1; it != there.end(); ++it) {
    Config checked = config;  // mistakes show at every scale
    read_scale(*it == scale ? config : checked, *table.get(*it), {origin, *it + "."});
  }
}

void read_recorded_config(Config& config, const std::string& text, const std::string& origin) {
  read_config_text(config, text, origin);
  const toml::table table = toml::parse(text);
  // Until runs could allow a gap, every assignment of the exact solver was the optimum.
  if (!table["experts"]["assignment_gap"]) config.experts.assignment_gap = 0;
  if (table["experts"]["features"]) return;
  // From before routers had a frame to choose, and priced routing was the best.
  take_papers_frame(config.experts);
  if (!table["experts"]["test_routing"]) config.experts.test_routing = TestRouting::kGreedy;
}

void read_config_file(Config& config, const std::string& path, const std::string& scale) {
  read_config_text(config, read_text(path), path, scale);
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

std::string shape_to_toml(const Config& config) {
  Config copy = config;
  std::string out, section;
  for (const Knob& knob : knobs(copy)) {
    if (knob.section != "model" && knob.section != "experts") continue;
    if (std::exchange(section, knob.section) != knob.section) out += fmt::format("[{}]\n", section);
    out += fmt::format("{} = {}\n", knob.key, toml_text(knob));
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

}  // namespace ballast::config
