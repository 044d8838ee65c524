// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/name_pattern.h"

#include <algorithm>

namespace ballast::parameters {

bool fits(std::string_view name, std::string_view pattern) {
  size_t at = 0, next = 0;  // in the name, in the pattern
  size_t star = std::string_view::npos, retry = 0;
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      retry = at;
    } else if (next < pattern.size() && pattern[next] == name[at]) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {  // the last * takes one more
      next = star + 1;
      at = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string_view::npos;
}

bool fits_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return fits(name, pattern); });
}

}  // namespace ballast::parameters
