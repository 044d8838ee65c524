// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/assignment/completion.h"
#include "ballast/assignment/solver.h"
#include "ballast/assignment/top_tokens.h"

namespace ballast::assignment {

// The BASE paper's auction: experts bid for tokens, a hundred rounds at most, and the rest is given
// away greedily. Not optimal, always valid. Where E divides T and there are no ties, it is exactly
// the paper's.
class AuctionSolver : public AssignmentSolver {
 public:
  static constexpr int kMostRounds = 100;

  using AssignmentSolver::AssignmentSolver;

  int rounds() const { return rounds_; }  // of the last call

 private:
  void choose(const ActiveProblem& problem, std::span<const double> start_prices,
              Choice& choice) override;
  void open(const ActiveProblem& problem);
  void copy_scores(const ActiveProblem& problem);
  bool run_round();  // true: each token has a bid
  void bid(size_t expert, TopTokens& top);
  void award();
  bool list_held();  // true: all tokens are held
  void set_prices(Choice& choice) const;
  void in_parts(size_t parts, const auto& body) const;

  struct Expert {
    int32_t wants = 0;  // tokens it may have
    int32_t holds = 0;
    int32_t first_held = 0;   // in held_
    int64_t begin = 0;        // of its part of bids_
    int32_t num_bids = 0;     // of this round
    float worth_of_next = 0;  // what its best token outside its list is worth to it
  };
  struct Bid {
    int32_t token;
    float amount;
  };
  struct Range {
    float lowest, largest;
  };
  static Range finite_range(std::span<const float> scores);

  int64_t tokens_ = 0, experts_ = 0;
  float scale_ = 1;              // a power of two that keeps sums of prices in range
  float range_ = 0;              // of the finite scores, scaled
  float increment_ = 0;          // the paper's epsilon
  std::vector<float> scores_;    // [E, T], scaled
  std::vector<float> price_;     // [T]
  std::vector<float> high_bid_;  // [T], of this round
  std::vector<int32_t> holder_;  // [T], -1: none
  std::vector<int32_t> held_;    // tokens with a holder, by holder
  std::vector<Expert> expert_;
  std::vector<Bid> bids_;
  std::vector<Range> ranges_;
  std::vector<TopTokens> top_;  // one a thread
  Completion completion_;
  int rounds_ = 0;
};

}  // namespace ballast::assignment
