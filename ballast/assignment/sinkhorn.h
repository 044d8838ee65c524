// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/assignment/completion.h"
#include "ballast/assignment/solver.h"

namespace ballast::assignment {

// The entropic plan: a fixed number of Sinkhorn passes at falling temperature, then each token's
// largest share, where experts have room, and the rest greedily. Not optimal, always valid.
class SinkhornSolver : public AssignmentSolver {
 public:
  static constexpr int kPasses = 32;

  using AssignmentSolver::AssignmentSolver;

 private:
  void choose(const ActiveProblem& problem, std::span<const double> start_prices,
              Choice& choice) override;
  void open(const ActiveProblem& problem);
  double typical_spread(const ActiveProblem& problem);
  void add_shares(const ActiveProblem& problem, double temperature);
  void change_prices(double temperature);
  void take_largest_shares(const ActiveProblem& problem, Choice& choice);
  void make_room(const ActiveProblem& problem, Choice& choice);

  float scale_ = 1;                   // a power of two that brings scores to at most 1
  std::vector<double> price_;         // [E], of scaled scores; infinite: no token may go there
  std::vector<float> rounded_price_;  // [E]
  std::vector<double> log_least_, log_most_;  // [E] logarithms of bounds, without padding's part
  std::vector<double> load_;                  // [E] sums of the plan's shares
  std::vector<double> block_load_;            // [blocks, E]
  std::vector<float> weights_;                // [blocks, E], whole vectors
  std::vector<float> spread_;                 // [T]
  std::vector<float> margin_;                 // [T] best minus second best worth
  std::vector<int32_t> rows_;                 // [T] by expert
  Completion completion_;
};

}  // namespace ballast::assignment
