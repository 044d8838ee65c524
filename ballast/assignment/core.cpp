// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/core.h"

#include <algorithm>
#include <limits>

#include "ballast/system/error.h"

namespace ballast::assignment {

void Core::clear(const std::vector<Units>& around, Units within) {
  reach = within;
  best_profits = 0;
  prices = around;
  settled.assign(around.size(), 0);
  begin.assign(1, 0);
  size.clear();
  is_part = false;
}

void Core::make_room(int64_t for_pairs) {
  if (for_pairs > std::numeric_limits<int32_t>::max()) {
    fail("more than 2^31 pairs of tokens and experts are equally good");
  }
  const auto wanted = static_cast<size_t>(for_pairs);
  if (expert.size() >= wanted) return;
  expert.resize(wanted);
  deficit.resize(wanted);
  held.resize(wanted);
  origin.resize(wanted);
}

void Core::reserve(int64_t tokens, int64_t experts, int64_t pairs) {
  expert.reserve(pairs);
  deficit.reserve(pairs);
  held.reserve(pairs);
  origin.reserve(pairs);
  moved.reserve(experts);
  prices.reserve(experts);
  settled.reserve(experts);
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

void take_part(const Core& whole, const std::vector<Units>& prices, Units reach, Core& part) {
  part.clear(prices, reach);
  part.is_part = true;
  part.settled = whole.settled;
  part.make_room(whole.pairs());
  std::vector<Units>& moved = part.moved;
  moved.resize(prices.size());
  double lost = 0;  // of the tokens' best profits, by the movement of prices
  for (size_t e = 0; e < prices.size(); ++e) {
    moved[e] = prices[e] - whole.prices[e];
    lost += static_cast<double>(whole.settled[e]) * static_cast<double>(moved[e]);
  }
  part.begin.resize(whole.groups() + 1);
  part.size.resize(whole.groups());
  // Pointers of their own: what is written could otherwise be what they are read from.
  const int32_t* const from_expert = whole.expert.data();
  const Units* const from_deficit = whole.deficit.data();
  const int32_t* const from_held = whole.held.data();
  const int32_t* const from_origin = whole.origin.data();
  int32_t* const to_expert = part.expert.data();
  Units* const to_deficit = part.deficit.data();
  int32_t* const to_held = part.held.data();
  int32_t* const to_origin = part.origin.data();
  const Units* const by = moved.data();
  int32_t kept = 0;
  int32_t groups = 0;
  for (int32_t g = 0; g < whole.groups(); ++g) {
    const int32_t begin = whole.begin[g];
    const int32_t end = whole.begin[g + 1];
    const int32_t size = whole.size[g];
    Units least = std::numeric_limits<Units>::max();
    for (int32_t k = begin; k < end; ++k) {
      least = std::min(least, from_deficit[k] + by[from_expert[k]]);
    }
    lost += static_cast<double>(least) * size;
    const int32_t first = kept;
    for (int32_t k = begin; k < end; ++k) {  // written always, kept if within reach: no branch
      const int32_t expert = from_expert[k];
      const Units deficit = from_deficit[k] + by[expert] - least;
      to_expert[kept] = expert;
      to_deficit[kept] = deficit;
      to_held[kept] = from_held[k];
      to_origin[kept] = whole.is_part ? from_origin[k] : k;
      kept += deficit <= reach ? 1 : 0;
    }
    const int32_t settled = -static_cast<int32_t>(kept == first + 1);  // all bits or none
    part.settled[to_expert[first]] += size & settled;
    kept += settled;
    part.size[groups] = size;
    groups += 1 + settled;
    part.begin[groups] = kept;
  }
  part.begin.resize(groups + 1);
  part.size.resize(groups);
  part.best_profits = whole.best_profits - lost;
}

void give_back(const Core& part, Core& root) {
  std::fill_n(root.held.begin(), root.pairs(), 0);
  for (int32_t k = 0; k < part.pairs(); ++k) root.held[part.origin[k]] = part.held[k];
}

bool holds_best(const Core& core, const Core& root, const std::vector<Units>& prices,
                const std::vector<Units>& settled_at) {
  const int32_t* const held = root.held.data();
  for (int32_t g = 0; g < core.groups(); ++g) {
    Units least = std::numeric_limits<Units>::max();
    Units worst_held = std::numeric_limits<Units>::min();
    Units least_settled = least;
    Units settled = least;  // the deficit of the candidate that is best at `settled_at`
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      const Units deficit = core.deficit_at(k, prices);
      least = std::min(least, deficit);
      const int32_t holds = held[core.is_part ? core.origin[k] : k];
      worst_held = std::max(worst_held, holds > 0 ? deficit : worst_held);
      const Units before = core.deficit_at(k, settled_at);
      settled = before < least_settled ? deficit : settled;
      least_settled = std::min(least_settled, before);
    }
    const bool is_held = worst_held != std::numeric_limits<Units>::min();
    if ((is_held ? worst_held : settled) > least) return false;
  }
  return true;
}

}  // namespace ballast::assignment
