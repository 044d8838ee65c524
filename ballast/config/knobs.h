// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ballast/config/config.h"

namespace ballast::config {

inline constexpr double kMany = 1e12;  // the upper end of what has none in practice

// One value of the configuration: where it lives, what it means, what it may be.
struct Knob {
  // A member that is an enum of choices.h: its place among `choices`.
  struct Choice {
    std::function<size_t()> get;
    std::function<void(size_t)> set;
  };
  using Target =
      std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*, Choice>;

  std::string section, key;
  Target target;
  std::string help;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // for strings and enums; empty: any
  bool is_duration = false;               // seconds, which may be written "10m"
  // A run may go on with another value: the knob changes how it is watched, kept or ended, not what
  // a step computes.
  bool is_operational = false;

  Knob& duration() {
    is_duration = true;
    return *this;
  }
  Knob& operational() {
    is_operational = true;
    return *this;
  }
  std::string name() const { return section + "." + key; }
  bool is_named(std::string_view name) const {
    return name.size() == section.size() + 1 + key.size() && name.starts_with(section) &&
           name[section.size()] == '.' && name.ends_with(key);
  }
};

// Every knob there is, bound to `config`: the one list that flags, TOML, help and records come
// from.
std::vector<Knob> knobs(Config& config);
// set_knob (config.h) for several values of one config, whose list is made once.
void set_knob(const std::vector<Knob>& all, const std::string& key, const std::string& value);

// For values that came neither from text nor from a file of ours: throws UserError naming the knob
// whose number is outside of its range.
void check_ranges(const Config& config);

}  // namespace ballast::config
