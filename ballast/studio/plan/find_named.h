// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::plan {

// Of things that have a name: all names, and the thing that has this one.
template <class Thing>
std::vector<std::string> names_of(const std::vector<Thing>& things) {
  std::vector<std::string> names;
  for (const Thing& thing : things) names.push_back(thing.name);
  return names;
}

// UserError, which begins with `option`: there is none, and these there are.
template <class Thing>
Thing find_named(const std::vector<Thing>& things, const std::string& name, const char* option) {
  for (const Thing& thing : things) {
    if (thing.name == name) return thing;
  }
  fail("{}: there is no \"{}\"; want one of {}", option, name, fmt::join(names_of(things), ", "));
}

}  // namespace ballast::plan
