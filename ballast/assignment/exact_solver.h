// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/core.h"
#include "ballast/assignment/exchange.h"
#include "ballast/assignment/price_descent.h"
#include "ballast/assignment/solver.h"

namespace ballast::assignment {

// The optimum, with prices that prove it: PriceDescent finds prices at which loads are nearly
// right, exchanges of tokens along cheapest chains then make them exact. docs/assignment.md
// explains.
class ExactSolver : public AssignmentSolver {
 public:
  using AssignmentSolver::AssignmentSolver;

  const ExactWork& work() const { return work_; }  // of the last call

 protected:
  void choose(const ActiveProblem& problem, std::span<const double> start_prices,
              Choice& choice) override;
  bool accept(const ActiveProblem& problem, const Certificate& certificate) override;

 private:
  void find_free_tokens(const ActiveProblem& problem);
  bool exchange(const ActiveProblem& problem, bool has_all_pairs);
  Units reach_of_part(const Core& core, int64_t tokens);
  void read_choice(Choice& choice);
  void find_holders(const Core& core);

  ExactWork work_;
  bool wide_ = false;  // this call found the narrow units too coarse
  PriceDescent descent_;
  Exchange exchange_;
  std::vector<FreeTokens> free_;  // padding, and places that stay empty
  std::vector<Units> start_prices_;
  std::vector<Units> settled_at_;  // prices of the part that settled all groups nobody holds
  std::vector<Units> gaps_;
  std::vector<Units> moved_;     // [E] prices, from the core's to settled_at_
  std::vector<int32_t> holder_;  // [groups]
  std::vector<double> wide_start_;
};

}  // namespace ballast::assignment
