// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/exchange.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr Units kUnreachable = std::numeric_limits<Units>::max() / 4;
constexpr Units kFar = kUnreachable / 2;  // prices may bring an unreachable cost down a little

// distance[b] = min(distance[b], offset + cost[b] + prices[b]) where b is not done; returns the
// least distance not done.
BALLAST_VECTOR_CLONES
Units relax(const Units* cost, const Units* prices, const uint8_t* done, Units offset,
            Units* distance, int64_t experts) {
  Units least = kUnreachable;
  for (int64_t b = 0; b < experts; ++b) {
    const Units through = offset + cost[b] + prices[b];
    const Units nearer = distance[b] < through ? distance[b] : through;
    distance[b] = done[b] ? distance[b] : nearer;
    const Units open = done[b] ? kUnreachable : distance[b];
    least = open < least ? open : least;
  }
  return least;
}

}  // namespace

void Exchange::reserve(int64_t tokens, int64_t pairs, int64_t experts) {
  const int64_t members = pairs + 2 * experts;
  members_.reserve(members);
  memberships_.reserve(members);
  member_group_.reserve(members);
  group_begin_.reserve(tokens + 3);
  level_.reserve(tokens + experts + 3);
  next_.reserve(tokens + experts + 3);
  queue_.reserve(tokens + experts + 3);
}

bool Exchange::balance(Core& core, std::span<FreeTokens> free, std::span<const int32_t> places,
                       std::vector<Units>& prices) {
  experts_ = static_cast<int64_t>(prices.size());
  phases = 0;
  moved = 0;
  excess_.resize(experts_);
  for (int64_t e = 0; e < experts_; ++e) excess_[e] = core.settled[e] - places[e];
  for (FreeTokens& tokens : free) hold_free(tokens, prices);
  hold_best(core, prices);
  while (std::any_of(excess_.begin(), excess_.end(), [](int32_t x) { return x > 0; })) {
    ++phases;
    measure_exchanges(core, free);
    if (!shortest_paths(prices)) return false;
    for (int64_t e = 0; e < experts_; ++e) {
      prices[e] += farthest_ - std::min(distance_[e], farthest_);
    }
    find_tight_groups(core, free, prices);
    const int64_t before = moved;
    maximum_flow();
    if (moved == before) throw std::logic_error("an exchange found a chain but moved nothing");
  }
  return true;
}

// The cheapest experts take free tokens first: that is where the tokens' profit is best.
void Exchange::hold_free(FreeTokens& free, const std::vector<Units>& prices) {
  order_.resize(experts_);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return prices[a] < prices[b] || (prices[a] == prices[b] && a < b);
  });
  free.held.assign(experts_, 0);
  int64_t left = free.count;
  for (const int32_t e : order_) {
    const auto taken = static_cast<int32_t>(std::min<int64_t>(left, free.limit[e]));
    free.held[e] = taken;
    excess_[e] += taken;
    left -= taken;
  }
}

// What is held stays where it is best; the rest goes to the best expert with the most room.
void Exchange::hold_best(Core& core, const std::vector<Units>& prices) {
  for (int32_t g = 0; g < core.groups(); ++g) {
    const int32_t begin = core.begin[g];
    const int32_t end = core.begin[g + 1];
    Units least = std::numeric_limits<Units>::max();
    for (int32_t k = begin; k < end; ++k) least = std::min(least, core.deficit_at(k, prices));
    int32_t left = core.size[g];
    for (int32_t k = begin; k < end; ++k) {
      if (core.held[k] == 0) continue;
      if (core.deficit_at(k, prices) != least) core.held[k] = 0;
      excess_[core.expert[k]] += core.held[k];
      left -= core.held[k];
    }
    while (left > 0) {
      int32_t roomiest = -1;
      for (int32_t k = begin; k < end; ++k) {
        if (core.deficit_at(k, prices) != least) continue;
        if (roomiest < 0 || excess_[core.expert[k]] < excess_[core.expert[roomiest]]) roomiest = k;
      }
      int32_t& excess = excess_[core.expert[roomiest]];
      const int32_t taken = excess < 0 ? std::min(left, -excess) : left;
      core.held[roomiest] += taken;
      excess += taken;
      left -= taken;
    }
  }
}

void Exchange::measure_exchanges(const Core& core, std::span<const FreeTokens> free) {
  exchange_.assign(experts_ * experts_, kUnreachable);
  for (int32_t g = 0; g < core.groups(); ++g) {
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      if (core.held[k] == 0) continue;
      const int64_t a = core.expert[k];
      const Units own = core.prices[a] - core.deficit[k];  // the score, up to the token's constant
      Units* row = &exchange_[a * experts_];
      for (int32_t l = core.begin[g]; l < core.begin[g + 1]; ++l) {
        const int32_t b = core.expert[l];
        row[b] = std::min(row[b], own - (core.prices[b] - core.deficit[l]));
      }
    }
  }
  for (const FreeTokens& tokens : free) {
    for (int64_t a = 0; a < experts_; ++a) {
      if (tokens.held[a] == 0) continue;
      for (int64_t b = 0; b < experts_; ++b) {
        Units& cost = exchange_[a * experts_ + b];
        if (tokens.held[b] < tokens.limit[b]) cost = std::min<Units>(cost, 0);
      }
    }
  }
}

// Dijkstra from all experts with too many tokens, until those with too few are reached.
bool Exchange::shortest_paths(const std::vector<Units>& prices) {
  distance_.resize(experts_);
  done_.assign(experts_, 0);
  int64_t wanting = 0;
  for (int64_t e = 0; e < experts_; ++e) {
    distance_[e] = excess_[e] > 0 ? 0 : kUnreachable;
    wanting += excess_[e] < 0 ? 1 : 0;
  }
  farthest_ = -1;
  Units least = 0;
  while (least < kFar && wanting > 0) {
    int64_t nearest = 0;
    while (done_[nearest] != 0 || distance_[nearest] != least) ++nearest;
    done_[nearest] = 1;
    if (excess_[nearest] < 0) {
      farthest_ = least;
      --wanting;
    }
    least = relax(&exchange_[nearest * experts_], prices.data(), done_.data(),
                  least - prices[nearest], distance_.data(), experts_);
  }
  return farthest_ >= 0;
}

void Exchange::find_tight_groups(Core& core, std::span<FreeTokens> free,
                                 const std::vector<Units>& prices) {
  members_.clear();
  group_begin_.assign(1, 0);
  const auto close_group = [&] {
    if (static_cast<int32_t>(members_.size()) < group_begin_.back() + 2) {
      members_.resize(group_begin_.back());
    } else {
      group_begin_.push_back(static_cast<int32_t>(members_.size()));
    }
  };
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  for (int32_t g = 0; g < core.groups(); ++g) {
    Units least = std::numeric_limits<Units>::max();
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      least = std::min(least, core.deficit_at(k, prices));
    }
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      if (core.deficit_at(k, prices) != least) continue;
      members_.push_back({.expert = core.expert[k], .held = &core.held[k], .limit = kNoLimit});
    }
    close_group();
  }
  for (FreeTokens& tokens : free) {
    // The price at which free tokens may change places.
    Units dearest = std::numeric_limits<Units>::min();
    for (int64_t e = 0; e < experts_; ++e) {
      if (tokens.held[e] > 0) dearest = std::max(dearest, prices[e]);
    }
    for (int64_t e = 0; e < experts_; ++e) {
      if (prices[e] != dearest || tokens.limit[e] == 0) continue;
      members_.push_back(
          {.expert = static_cast<int32_t>(e), .held = &tokens.held[e], .limit = tokens.limit[e]});
    }
    close_group();
  }
  expert_begin_.assign(experts_ + 1, 0);
  member_group_.resize(members_.size());
  for (const TightMember& member : members_) ++expert_begin_[member.expert + 1];
  std::partial_sum(expert_begin_.begin(), expert_begin_.end(), expert_begin_.begin());
  memberships_.resize(members_.size());
  next_.assign(expert_begin_.begin(), expert_begin_.end() - 1);
  for (size_t g = 0; g + 1 < group_begin_.size(); ++g) {
    for (int32_t m = group_begin_[g]; m < group_begin_[g + 1]; ++m) {
      member_group_[m] = static_cast<int32_t>(g);
      memberships_[next_[members_[m].expert]++] = m;
    }
  }
}

// Dinic's method. Nodes: experts, then tight groups. An expert leads to a group of which it holds
// tokens, a group to its experts.
void Exchange::maximum_flow() {
  while (levels_reach_room()) {
    next_.resize(level_.size());
    std::copy(expert_begin_.begin(), expert_begin_.end() - 1, next_.begin());
    std::copy(group_begin_.begin(), group_begin_.end() - 1, next_.begin() + experts_);
    for (int32_t e = 0; e < experts_; ++e) {
      while (excess_[e] > 0) {
        const int32_t pushed = push(e, excess_[e]);
        if (pushed == 0) break;
        excess_[e] -= pushed;
        moved += pushed;
      }
    }
  }
}

bool Exchange::levels_reach_room() {
  const auto groups = static_cast<int64_t>(group_begin_.size()) - 1;
  level_.assign(experts_ + groups, -1);
  queue_.clear();
  for (int32_t e = 0; e < experts_; ++e) {
    if (excess_[e] <= 0) continue;
    level_[e] = 0;
    queue_.push_back(e);
  }
  bool reached = false;
  for (size_t i = 0; i < queue_.size(); ++i) {
    const int32_t node = queue_[i];
    if (node < experts_) {
      reached = reached || excess_[node] < 0;
      for (int32_t j = expert_begin_[node]; j < expert_begin_[node + 1]; ++j) {
        const int32_t m = memberships_[j];
        const auto group = static_cast<int32_t>(experts_ + member_group_[m]);
        if (level_[group] >= 0 || *members_[m].held == 0) continue;
        level_[group] = level_[node] + 1;
        queue_.push_back(group);
      }
    } else {
      const int64_t group = node - experts_;
      for (int32_t m = group_begin_[group]; m < group_begin_[group + 1]; ++m) {
        const TightMember& member = members_[m];
        if (level_[member.expert] >= 0 || *member.held >= member.limit) continue;
        level_[member.expert] = level_[node] + 1;
        queue_.push_back(member.expert);
      }
    }
  }
  return reached;
}

// Pushes up to `amount` tokens from a node on along rising levels; returns how many found room.
int32_t Exchange::push(int32_t node, int32_t amount) {
  if (node < experts_) {
    if (excess_[node] < 0) {
      const int32_t taken = std::min(amount, -excess_[node]);
      excess_[node] += taken;
      return taken;
    }
    for (int32_t& j = next_[node]; j < expert_begin_[node + 1]; ++j) {
      const int32_t m = memberships_[j];
      int32_t& held = *members_[m].held;
      const auto group = static_cast<int32_t>(experts_ + member_group_[m]);
      if (held == 0 || level_[group] != level_[node] + 1) continue;
      const int32_t pushed = push(group, std::min(amount, held));
      held -= pushed;
      if (pushed > 0) return pushed;
    }
    return 0;
  }
  const int64_t group = node - experts_;
  for (int32_t& m = next_[node]; m < group_begin_[group + 1]; ++m) {
    const TightMember& member = members_[m];
    const int32_t room = member.limit - *member.held;
    if (room <= 0 || level_[member.expert] != level_[node] + 1) continue;
    const int32_t pushed = push(member.expert, std::min(amount, room));
    *member.held += pushed;
    if (pushed > 0) return pushed;
  }
  return 0;
}

}  // namespace ballast::assignment
