// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/solver.h"

namespace ballast::assignment {

// Each token takes its best expert, of equal ones the first. Bounds are ignored, so the result is
// usually not valid; prices are 0.
class GreedySolver : public AssignmentSolver {
 public:
  using AssignmentSolver::AssignmentSolver;

 private:
  void choose(const ActiveProblem& problem, std::span<const double> start_prices,
              Choice& choice) override;
};

}  // namespace ballast::assignment
