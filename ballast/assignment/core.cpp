// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/core.h"

#include <algorithm>
#include <limits>

namespace ballast {

void Core::clear(const std::vector<Units>& around, Units within) {
  reach = within;
  prices = around;
  settled.assign(around.size(), 0);
  begin.assign(1, 0);
  size.clear();
  expert.clear();
  deficit.clear();
  held.clear();
  origin.clear();
}

void Core::reserve(int64_t tokens, int64_t most_pairs) {
  begin.reserve(tokens + 1);
  size.reserve(tokens);
  expert.reserve(most_pairs);
  deficit.reserve(most_pairs);
  held.reserve(most_pairs);
  origin.reserve(most_pairs);
}

Units spread(const std::vector<Units>& from, const std::vector<Units>& to) {
  Units lowest = std::numeric_limits<Units>::max();
  Units highest = std::numeric_limits<Units>::min();
  for (size_t e = 0; e < from.size(); ++e) {
    lowest = std::min(lowest, to[e] - from[e]);
    highest = std::max(highest, to[e] - from[e]);
  }
  return highest - lowest;
}

void take_part(const Core& whole, const std::vector<Units>& prices, Units reach, Core& part,
               std::vector<int32_t>& held) {
  part.clear(prices, reach);
  part.settled = whole.settled;
  part.expert.resize(whole.pairs());  // room for all, cut to size at the end
  part.deficit.resize(whole.pairs());
  part.origin.resize(whole.pairs());
  const bool nested = !whole.origin.empty();
  int32_t kept = 0;
  for (int32_t g = 0; g < whole.groups(); ++g) {
    const int32_t begin = whole.begin[g];
    const int32_t end = whole.begin[g + 1];
    const int32_t first = kept;
    const auto deficit = [&](int32_t k) {
      return whole.deficit[k] + prices[whole.expert[k]] - whole.prices[whole.expert[k]];
    };
    Units least = deficit(begin);
    for (int32_t k = begin + 1; k < end; ++k) least = std::min(least, deficit(k));
    for (int32_t k = begin; k < end; ++k) {  // written always, kept if within reach: no branch
      const Units below = deficit(k) - least;
      part.expert[kept] = whole.expert[k];
      part.deficit[kept] = below;
      part.origin[kept] = nested ? whole.origin[k] : k;
      kept += below <= reach ? 1 : 0;
    }
    if (kept == first + 1) {
      part.settled[part.expert[first]] += whole.size[g];
      held[part.origin[first]] = whole.size[g];
      kept = first;
    } else {
      part.begin.push_back(kept);
      part.size.push_back(whole.size[g]);
    }
  }
  part.expert.resize(kept);
  part.deficit.resize(kept);
  part.origin.resize(kept);
}

}  // namespace ballast
