// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/core.h"

namespace ballast::assignment {

// Tokens that are worth the same at every expert: padding, and places that stay empty.
struct FreeTokens {
  int64_t count = 0;
  std::vector<int32_t> limit;  // [E] the most of them that an expert takes
  std::vector<int32_t> held;   // [E]
};

// The exact finish: experts with too many tokens hand them on, along the cheapest chains of
// exchanges, to experts with too few. Shortest paths from all of the former raise prices until such
// chains cost nothing; a maximum flow moves tokens along them; and so on. Throughout, each token is
// with one of its best experts, so that balanced loads are an optimum of the core.
class Exchange {
 public:
  void reserve(int64_t tokens, int64_t pairs, int64_t experts);

  // Balances core.held and the free tokens' `held` so that each expert's load is `places[e]`, and
  // moves `prices` along. Tokens that are held stay where they are if that is best at `prices`; the
  // others start with their best expert. False: some cannot reach a place within this core.
  bool balance(Core& core, std::span<FreeTokens> free, std::span<const int32_t> places,
               std::vector<Units>& prices);

  int64_t phases = 0;  // of the last call
  int64_t moved = 0;

 private:
  struct TightMember {  // an expert that is among the best of a tight group
    int32_t expert;
    int32_t* held;
    int32_t limit;
  };

  void hold_best(Core& core, const std::vector<Units>& prices);
  void hold_free(FreeTokens& free, const std::vector<Units>& prices);
  void measure_exchanges(const Core& core, std::span<const FreeTokens> free);
  bool shortest_paths(const std::vector<Units>& prices);
  void find_tight_groups(Core& core, std::span<FreeTokens> free, const std::vector<Units>& prices);
  void maximum_flow();
  bool levels_reach_room();
  int32_t push(int32_t node, int32_t amount);

  int64_t experts_ = 0;
  std::vector<int32_t> excess_;  // [E] load - places
  std::vector<Units> exchange_;  // [E, E] least score lost by moving a token from row to column
  std::vector<Units> distance_;  // [E]
  std::vector<uint8_t> done_;    // [E]
  Units farthest_ = 0;
  std::vector<TightMember> members_;           // of the tight groups, one group after the other
  std::vector<int32_t> group_begin_;           // [tight groups + 1]
  std::vector<int32_t> expert_begin_;          // [E + 1] into memberships_
  std::vector<int32_t> memberships_;           // members_ by expert
  std::vector<int32_t> member_group_;          // group of each member
  std::vector<int32_t> level_, next_, queue_;  // [E + tight groups]
  std::vector<int32_t> order_;                 // [E]
};

}  // namespace ballast::assignment
