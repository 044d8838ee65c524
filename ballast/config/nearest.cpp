// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "ballast/config/config.h"

namespace ballast::config {
namespace {

std::string_view without_dashes(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('-'), text.size()));
}

std::string_view last_part(std::string_view text) { return text.substr(text.rfind('.') + 1); }

// How many letters differ, where two neighbours that changed places count once.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

bool is_near(size_t distance, std::string_view a, std::string_view b) {
  return 3 * distance <= std::max(a.size(), b.size());
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string_view meant = without_dashes(word);
  std::string found;
  size_t least = static_cast<size_t>(-1);
  const auto take = [&](const std::string& candidate, std::string_view name, size_t handicap) {
    const size_t differing = distance(meant, name);
    if (!is_near(differing, meant, name) || 2 * differing + handicap >= least) return;
    least = 2 * differing + handicap;
    found = candidate;
  };
  for (const std::string& candidate : candidates) {
    const std::string_view name = without_dashes(candidate);
    take(candidate, name, 0);
    if (meant.find('.') == std::string_view::npos) take(candidate, last_part(name), 1);
  }
  return found;
}

std::string nearest_is(const std::string& word, const std::vector<std::string>& candidates,
                       const std::string& form) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? "" : "; the nearest is " + fmt::format(fmt::runtime(form), found);
}

}  // namespace ballast::config
