// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/exact_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"

namespace ballast::assignment {

void ExactSolver::find_free_tokens(const ActiveProblem& problem) {
  const LoadBounds& bounds = *problem.bounds;
  const int64_t places = std::accumulate(bounds.upper.begin(), bounds.upper.end(), int64_t{0});
  free_.resize(2);
  free_[0].count = problem.padding;
  free_[0].limit = bounds.upper;
  free_[1].count = places - problem.tokens - problem.padding;
  free_[1].limit.resize(problem.experts);
  for (int64_t e = 0; e < problem.experts; ++e) {
    free_[1].limit[e] = bounds.upper[e] - bounds.lower[e];
  }
}

void ExactSolver::choose(const ActiveProblem& problem, std::span<const double> start_prices,
                         Choice& choice) {
  work_ = {};
  const bool wide = std::exchange(wide_, false);  // for this call only, however it ends
  if (problem.tokens == 0) return;
  constexpr int64_t kMostExperts = 16384;  // memory grows with their square
  if (problem.experts > kMostExperts) {
    fail("the exact solver takes up to {} experts, not {}", kMostExperts, problem.experts);
  }
  find_free_tokens(problem);
  descent_.begin(problem, {.wide = wide, .threads = threads()}, work_);
  if (wide) {  // once more, from the prices that were not exact enough
    wide_start_.assign(choice.prices.begin(), choice.prices.end());
    start_prices = wide_start_;
  }
  descent_.find_prices(start_prices);
  exchange_.reserve(problem.tokens, most_usual_pairs(problem), problem.experts);
  gaps_.reserve(problem.tokens);
  holder_.reserve(problem.tokens + 1);
  // Few candidates are nearly always enough. With all of them there is nothing outside the core.
  constexpr int kPatience = 8;
  constexpr int64_t kFewExperts = 12;
  bool balanced = false;
  int64_t candidates = problem.experts <= kFewExperts ? 1 : 3;
  for (int i = 0; !balanced; ++i) {
    descent_.snap_to_grid();
    const bool has_all_pairs = candidates >= problem.experts;
    const bool stayed = descent_.descend_on_all(candidates);
    if (stayed || has_all_pairs || i >= kPatience) {
      balanced = exchange(problem, has_all_pairs);
      if (!balanced && has_all_pairs) {
        fail_infeasible();
      }
    }
    const int64_t more = stayed ? 4 : i > 0 ? 2 : 1;
    candidates = std::min(more * candidates, problem.experts);
  }
  descent_.normalise_prices();
  for (int64_t e = 0; e < problem.experts; ++e) {
    const auto units = static_cast<double>(descent_.prices()[e]);
    choice.prices[e] = units / descent_.extractor().units_per_score();
  }
  read_choice(choice);
}

// In a small part of the core first. If that moved prices so far that other tokens of the core want
// to move as well, goes on from there in a larger part.
bool ExactSolver::exchange(const ActiveProblem& problem, bool has_all_pairs) {
  descent_.snap_to_grid();
  std::vector<Units>& prices = descent_.prices();
  Core& core = descent_.core();
  const auto room_in = [&](const Core& whole) {
    return whole.reach - spread(whole.prices, prices);
  };
  Core* from = &descent_.part_with_room(1);
  constexpr int64_t kTokensPerMove = 20;
  const int64_t moves = std::max(descent_.imbalance(), problem.experts / 2);
  Units reach = reach_of_part(*from, kTokensPerMove * moves);
  while (true) {
    from = &descent_.part_with_room(reach);
    const Units room = has_all_pairs ? kEverything : room_in(core);
    if (room <= 0) return false;
    const bool is_largest = reach >= room;
    Core& part = descent_.next_part();
    start_prices_ = prices;
    take_part(*from, prices, std::min(reach, room), part);
    const bool balanced = exchange_.balance(part, free_, problem.bounds->upper, prices);
    work_.phases += exchange_.phases;
    work_.tokens_moved += exchange_.moved;
    if (balanced) {
      give_back(part, core);
      settled_at_ = part.prices;
      // A part that prices have not left says of the whole core what is best.
      if (spread(part.prices, prices) <= part.reach) return true;
      if (has_all_pairs || room_in(core) >= 0) {
        if (holds_best(descent_.part_with_room(0), core, prices, settled_at_)) return true;
      }
      descent_.forget_parts();  // what they hold is old
    } else {
      prices = start_prices_;
    }
    if (is_largest) return false;
    reach = reach > room / 16 ? room : 4 * reach;
  }
}

// The reach of a part with about this many tokens, up to all that `core` allows.
Units ExactSolver::reach_of_part(const Core& core, int64_t tokens) {
  const std::vector<Units>& prices = descent_.prices();
  const Units most = std::max<Units>(1, core.reach - spread(core.prices, prices));
  if (tokens >= core.groups()) return most;
  gaps_.clear();
  for (int32_t g = 0; g < core.groups(); ++g) {
    Units least = std::numeric_limits<Units>::max();
    Units second = least;
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      const Units deficit = core.deficit_at(k, prices);
      second = std::min(second, std::max(least, deficit));
      least = std::min(least, deficit);
    }
    gaps_.push_back(second - least);
  }
  std::nth_element(gaps_.begin(), gaps_.begin() + tokens, gaps_.end());
  return std::clamp<Units>(gaps_[tokens], 1, most);
}

void ExactSolver::read_choice(Choice& choice) {
  Core& core = descent_.core();
  find_holders(core);
  const std::vector<int32_t>& group_of = descent_.extractor().group_of();
  const std::vector<int32_t>& best_expert = descent_.extractor().best_expert();
  for (size_t row = 0; row < choice.expert_of_row.size(); ++row) {
    const int32_t group = group_of[row];
    const int32_t settled = -static_cast<int32_t>(group < 0);  // all bits or none: no branch
    const int32_t holder = holder_[std::max(group, 0)];
    choice.expert_of_row[row] = (best_expert[row] & settled) | (holder & ~settled);
  }
  if (!descent_.extractor().makes_groups()) return;
  for (size_t row = 0; row < choice.expert_of_row.size(); ++row) {
    const int32_t group = group_of[row];
    if (group < 0 || core.size[group] == 1) continue;
    int32_t k = core.begin[group];
    while (k < core.begin[group + 1] && core.held[k] == 0) ++k;
    if (k == core.begin[group + 1]) continue;
    --core.held[k];
    choice.expert_of_row[row] = core.expert[k];
  }
}

// One that holds the group; of a group that the last part settled, the best then.
void ExactSolver::find_holders(const Core& core) {
  holder_.resize(core.groups() + 1);  // one more: there may be none
  moved_.resize(core.prices.size());
  for (size_t e = 0; e < moved_.size(); ++e) moved_[e] = settled_at_[e] - core.prices[e];
  const int32_t* const expert = core.expert.data();
  for (int32_t g = 0; g < core.groups(); ++g) {
    Units least = std::numeric_limits<Units>::max();
    int32_t best = 0;
    int32_t holder = -1;
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      const Units deficit = core.deficit[k] + moved_[expert[k]];
      const int32_t better = -static_cast<int32_t>(deficit < least);
      best ^= (best ^ expert[k]) & better;
      least = std::min(least, deficit);
      holder = std::max(holder, expert[k] | -static_cast<int32_t>(core.held[k] == 0));
    }
    holder_[g] = holder < 0 ? best : holder;
  }
}

// The gap is nothing but the units' coarseness, which is too much only where few scores are far
// larger than all others.
bool ExactSolver::accept(const ActiveProblem& problem, const Certificate& certificate) {
  constexpr double kEnough = 1e-9;
  double magnitude = std::max<double>(problem.largest_magnitude, std::fabs(certificate.primal));
  if (certificate.gap <= kEnough * magnitude) return true;
  magnitude = magnitude_of(problem);
  if (certificate.gap <= kEnough * magnitude) return true;
  if (work_.wide) throw std::logic_error("the exact solver did not reach the optimum");
  wide_ = true;
  return false;
}

}  // namespace ballast::assignment
