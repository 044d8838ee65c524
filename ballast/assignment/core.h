// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ballast/assignment/fixed_point.h"

namespace ballast::assignment {

// A reach that leaves nothing out.
constexpr Units kEverything = std::numeric_limits<Units>::max() / 4;

// The part of a problem that is still open around some prices: tokens that more than one expert may
// get if prices move a little. A token's candidates are the experts within `reach` of its best
// profit (score - price). While no two prices have moved apart by more than `reach`, nothing
// outside the core can matter, so the core is an exact model of the whole problem.
// Tokens with the same candidates at the same deficits form one group: padding, equal rows and
// coarse scores stay small. Arrays over pairs may be longer than there are pairs.
struct Core {
  Units reach = 0;
  double best_profits = 0;       // sum over tokens, relative to the core that this is a part of
  std::vector<Units> prices;     // [E] around which the core was taken
  std::vector<int32_t> settled;  // [E] tokens that have this expert as their only candidate
  std::vector<int32_t> begin;    // [groups + 1] group g has candidates begin[g] .. begin[g + 1]
  std::vector<int32_t> size;     // [groups] tokens in it
  std::vector<int32_t> expert;   // [pairs]
  std::vector<Units> deficit;    // [pairs] best profit - this profit: 0 ..= reach
  std::vector<int32_t> held;     // [pairs] tokens of the group that this expert has
  std::vector<int32_t> origin;   // [pairs] of a part: which pair of the whole core this is
  bool is_part = false;
  std::vector<Units> moved;  // [E] scratch of take_part

  int32_t groups() const { return static_cast<int32_t>(size.size()); }
  int32_t pairs() const { return begin.back(); }
  // The deficit of pair k at other prices, up to a constant of its group.
  Units deficit_at(int32_t k, const std::vector<Units>& at) const {
    return deficit[k] + at[expert[k]] - prices[expert[k]];
  }
  void clear(const std::vector<Units>& around, Units within);
  void reserve(int64_t tokens, int64_t experts, int64_t pairs);
  void make_room(int64_t for_pairs);  // in the arrays over pairs, whose contents are kept
};

// The part of `whole` that is still open at `prices`, within a smaller reach: cheaper to work on.
// What `whole` holds is carried over.
// REQUIRES: prices have not moved apart from whole.prices by more than whole.reach - reach.
void take_part(const Core& whole, const std::vector<Units>& prices, Units reach, Core& part);

// Enters what `part` holds into the core it was taken from. Nobody holds the groups that it
// settled.
void give_back(const Core& part, Core& root);

// Whether at `prices` every token of `core` is with one of its best candidates. `root` is the core
// it was taken from, or itself, and says who holds them. Groups that nobody holds are with their
// best at `settled_at`.
bool holds_best(const Core& core, const Core& root, const std::vector<Units>& prices,
                const std::vector<Units>& settled_at);

// Largest movement of two prices against each other.
Units spread(const std::vector<Units>& from, const std::vector<Units>& to);

}  // namespace ballast::assignment
