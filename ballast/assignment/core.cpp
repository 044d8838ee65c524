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
  is_part = false;
}

void Core::make_room(int64_t for_pairs) {
  const auto wanted = static_cast<size_t>(for_pairs);
  if (expert.size() >= wanted) return;
  expert.resize(wanted);
  deficit.resize(wanted);
  held.resize(wanted);
  origin.resize(wanted);
}

void Core::reserve(int64_t tokens, int64_t experts) {
  prices.reserve(experts);
  settled.reserve(experts);
  scratch.reserve(experts);
  begin.reserve(tokens + 1);
  size.reserve(tokens);
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
               Core& root) {
  part.clear(prices, reach);
  part.is_part = true;
  part.settled = whole.settled;
  part.make_room(whole.pairs());
  std::vector<Units>& moved = part.scratch;  // [E]
  moved.resize(prices.size());
  for (size_t e = 0; e < prices.size(); ++e) moved[e] = prices[e] - whole.prices[e];
  const auto origin = [&](int32_t k) { return whole.is_part ? whole.origin[k] : k; };
  int32_t kept = 0;
  for (int32_t g = 0; g < whole.groups(); ++g) {
    const int32_t begin = whole.begin[g];
    const int32_t end = whole.begin[g + 1];
    const int32_t first = kept;
    Units least = std::numeric_limits<Units>::max();
    for (int32_t k = begin; k < end; ++k) {
      least = std::min(least, whole.deficit[k] + moved[whole.expert[k]]);
    }
    for (int32_t k = begin; k < end; ++k) {  // written always, kept if within reach: no branch
      const Units below = whole.deficit[k] + moved[whole.expert[k]] - least;
      part.expert[kept] = whole.expert[k];
      part.deficit[kept] = below;
      part.held[kept] = whole.held[k];
      part.origin[kept] = origin(k);
      kept += below <= reach ? 1 : 0;
    }
    // Another part may have settled the group before: `part` alone says now who holds it.
    for (int32_t k = begin; k < end; ++k) root.held[origin(k)] = 0;
    if (kept == first + 1) {
      root.held[part.origin[first]] = whole.size[g];
      part.settled[part.expert[first]] += whole.size[g];
      kept = first;
    } else {
      part.begin.push_back(kept);
      part.size.push_back(whole.size[g]);
    }
  }
}

void give_back(const Core& part, Core& root) {
  for (int32_t g = 0; g < part.groups(); ++g) {
    for (int32_t k = part.begin[g]; k < part.begin[g + 1]; ++k) {
      root.held[part.origin[k]] = part.held[k];
    }
  }
}

bool holds_best(const Core& core, const std::vector<Units>& prices) {
  for (int32_t g = 0; g < core.groups(); ++g) {
    Units least = std::numeric_limits<Units>::max();
    Units worst_held = std::numeric_limits<Units>::min();
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      const Units deficit = core.deficit_at(k, prices);
      least = std::min(least, deficit);
      worst_held = core.held[k] > 0 ? std::max(worst_held, deficit) : worst_held;
    }
    if (worst_held > least) return false;
  }
  return true;
}

}  // namespace ballast
