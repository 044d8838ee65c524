// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/active_problem.h"

namespace ballast::assignment {

// Completes a partial assignment to a valid one, greedily. Keeps its memory between calls.
class Completion {
 public:
  // Places rows without an expert (-1) by score - price, then moves rows until lower bounds hold.
  // REQUIRES: upper bounds hold, no forbidden pair in use. UserError: no valid assignment exists.
  void complete(const ActiveProblem& problem, std::span<const double> prices,
                std::span<int32_t> expert_of_row);

 private:
  struct Move {
    double urgency;
    int32_t row;
    int32_t expert;
  };
  static bool less_urgent(const Move& a, const Move& b);

  void place_rows();
  void fill_lower_bounds();
  Move best_place(int32_t row) const;
  Move best_filling(int32_t row) const;
  void push(const Move& move);
  Move pop();

  // Moves rows along a chain from an expert of `reached_` to one of `wanted_`; which one gives and
  // which one gets a place. False: there is no chain.
  bool move_along_chain(int32_t& giver, int32_t& taker);
  void reach_further();

  const ActiveProblem* problem_ = nullptr;
  std::span<const double> prices_;
  std::span<int32_t> expert_of_row_;
  std::vector<int32_t> loads_;  // [E]
  std::vector<Move> moves_;     // a heap, the most urgent first
  // Of the search for a chain, [E]: the search's step that reached an expert (0: none yet), what it
  // looks for, and the row that would move there.
  std::vector<int32_t> reached_, via_row_;
  std::vector<uint8_t> wanted_;
  std::vector<float> via_gain_;
  int32_t step_ = 0;
};

}  // namespace ballast::assignment
