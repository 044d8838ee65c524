// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/completion.h"

#include <algorithm>
#include <limits>

namespace ballast::assignment {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

bool Completion::less_urgent(const Move& a, const Move& b) {
  return a.urgency < b.urgency || (a.urgency == b.urgency && a.row > b.row);
}

void Completion::push(const Move& move) {
  moves_.push_back(move);
  std::push_heap(moves_.begin(), moves_.end(), less_urgent);
}

Completion::Move Completion::pop() {
  std::pop_heap(moves_.begin(), moves_.end(), less_urgent);
  const Move move = moves_.back();
  moves_.pop_back();
  return move;
}

void Completion::complete(const ActiveProblem& problem, std::span<const double> prices,
                          std::span<int32_t> expert_of_row) {
  problem_ = &problem;
  prices_ = prices;
  expert_of_row_ = expert_of_row;
  moves_.reserve(expert_of_row.size());
  loads_.assign(static_cast<size_t>(problem.experts), 0);
  for (const int32_t expert : expert_of_row) {
    if (expert >= 0) ++loads_[expert];
  }
  place_rows();
  fill_lower_bounds();
}

// The best expert with room; urgent where the second best is much worse. Experts are looked at from
// another one for each row, so that rows with equal scores spread out.
Completion::Move Completion::best_place(int32_t row) const {
  const float* scores = problem_->row(row);
  const auto experts = static_cast<int32_t>(problem_->experts);
  Move move{.urgency = 0, .row = row, .expert = -1};
  double best = kNever;
  double second = kNever;
  int32_t expert = row % experts;
  for (int32_t i = 0; i < experts; ++i, expert = expert + 1 == experts ? 0 : expert + 1) {
    if (loads_[expert] >= problem_->bounds->upper[expert] || scores[expert] == kForbidden) continue;
    const double value = static_cast<double>(scores[expert]) - prices_[expert];
    if (move.expert < 0 || value > best) {
      second = best;
      best = value;
      move.expert = expert;
    } else {
      second = std::max(second, value);
    }
  }
  if (move.expert >= 0) move.urgency = best - second;
  return move;
}

void Completion::place_rows() {
  moves_.clear();
  for (int32_t row = 0; row < std::ssize(expert_of_row_); ++row) {
    if (expert_of_row_[row] < 0) moves_.push_back(best_place(row));
  }
  std::make_heap(moves_.begin(), moves_.end(), less_urgent);
  while (!moves_.empty()) {
    Move move = pop();
    if (move.expert >= 0 && loads_[move.expert] >= problem_->bounds->upper[move.expert]) {
      push(best_place(move.row));
      continue;
    }
    if (move.expert < 0) {  // all experts that the row may have are full
      const auto experts = static_cast<size_t>(problem_->experts);
      reached_.assign(experts, 0);
      wanted_.assign(experts, 0);
      for (size_t e = 0; e < experts; ++e) {
        reached_[e] = problem_->row(move.row)[e] != kForbidden ? 1 : 0;
        wanted_[e] = loads_[e] < problem_->bounds->upper[e] ? 1 : 0;
      }
      int32_t taker = -1;
      if (!move_along_chain(move.expert, taker)) fail_infeasible();
      --loads_[move.expert];
      ++loads_[taker];
    }
    expert_of_row_[move.row] = move.expert;
    ++loads_[move.expert];
  }
}

// The expert below its lower bound to which the row can move at the smallest loss.
Completion::Move Completion::best_filling(int32_t row) const {
  const float* scores = problem_->row(row);
  const int32_t expert = expert_of_row_[row];
  Move move{.urgency = kNever, .row = row, .expert = -1};
  if (loads_[expert] <= problem_->bounds->lower[expert]) return move;
  for (int32_t e = 0; e < static_cast<int32_t>(problem_->experts); ++e) {
    if (loads_[e] >= problem_->bounds->lower[e] || scores[e] == kForbidden) continue;
    const double gain = static_cast<double>(scores[e]) - scores[expert];
    if (move.expert < 0 || gain > move.urgency) {
      move.urgency = gain;
      move.expert = e;
    }
  }
  return move;
}

void Completion::fill_lower_bounds() {
  const LoadBounds& bounds = *problem_->bounds;
  int64_t missing = -problem_->padding;  // padding fills the first of them
  for (size_t e = 0; e < loads_.size(); ++e) missing += std::max(0, bounds.lower[e] - loads_[e]);
  if (missing <= 0) return;

  moves_.clear();
  for (int32_t row = 0; row < std::ssize(expert_of_row_); ++row) {
    const Move move = best_filling(row);
    if (move.expert >= 0) moves_.push_back(move);
  }
  std::make_heap(moves_.begin(), moves_.end(), less_urgent);
  for (; missing > 0 && !moves_.empty();) {
    const Move move = pop();
    const int32_t from = expert_of_row_[move.row];
    if (loads_[from] <= bounds.lower[from]) continue;
    if (loads_[move.expert] >= bounds.lower[move.expert]) {
      const Move other = best_filling(move.row);
      if (other.expert >= 0) push(other);
      continue;
    }
    expert_of_row_[move.row] = move.expert;
    --loads_[from];
    ++loads_[move.expert];
    --missing;
  }
  for (; missing > 0; --missing) {  // forbidden pairs are in the way
    reached_.assign(loads_.size(), 0);
    wanted_.assign(loads_.size(), 0);
    for (size_t e = 0; e < loads_.size(); ++e) {
      reached_[e] = loads_[e] > bounds.lower[e] ? 1 : 0;
      wanted_[e] = loads_[e] < bounds.lower[e] ? 1 : 0;
    }
    int32_t giver = -1;
    int32_t taker = -1;
    if (!move_along_chain(giver, taker)) fail_infeasible();
    --loads_[giver];
    ++loads_[taker];
  }
}

bool Completion::move_along_chain(int32_t& giver, int32_t& taker) {
  via_row_.assign(reached_.size(), -1);
  via_gain_.assign(reached_.size(), kForbidden);
  for (step_ = 1;; ++step_) {
    reach_further();
    bool further = false;
    taker = -1;
    for (int32_t e = 0; e < std::ssize(reached_); ++e) {
      if (reached_[e] != 0 || via_row_[e] < 0) continue;
      reached_[e] = step_ + 1;
      further = true;
      if (wanted_[e] != 0 && (taker < 0 || via_gain_[e] > via_gain_[taker])) taker = e;
    }
    if (!further) return false;
    if (taker >= 0) break;
  }
  for (giver = taker; reached_[giver] > 1;) {
    const int32_t from = expert_of_row_[via_row_[giver]];
    expert_of_row_[via_row_[giver]] = giver;
    giver = from;
  }
  return true;
}

// For each expert not reached yet, the row of a newly reached one that moves there at least loss.
void Completion::reach_further() {
  for (int32_t row = 0; row < std::ssize(expert_of_row_); ++row) {
    const int32_t from = expert_of_row_[row];
    if (from < 0 || reached_[from] != step_) continue;
    const float* scores = problem_->row(row);
    for (size_t e = 0; e < reached_.size(); ++e) {
      if (reached_[e] != 0 || scores[e] == kForbidden) continue;
      const float gain = scores[e] - scores[from];
      if (via_row_[e] < 0 || gain > via_gain_[e]) {
        via_row_[e] = row;
        via_gain_[e] = gain;
      }
    }
  }
}

}  // namespace ballast::assignment
