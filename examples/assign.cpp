// SPDX-License-Identifier: Apache-2.0
// Gives each of six tokens one of two experts, three each, so that the sum of scores is largest.
#include <cstdio>

#include "ballast/assignment/solver.h"

int main() {
  const float scores[6][2] = {{5, 1}, {4, 3}, {4, 0}, {3, 2.5F}, {2, 2}, {1, 3}};
  ballast::assignment::AssignmentProblem problem;
  problem.scores = ballast::assignment::score_matrix(&scores[0][0], 6, 2);
  ballast::assignment::Assignment result;
  ballast::assignment::make_solver(ballast::assignment::SolverKind::kExact)
      ->solve(problem, {}, result);
  for (int token = 0; token < 6; ++token)
    std::printf("token %d: expert %d\n", token, result.expert_of_token[token]);
  std::printf("sum %g, at most %g\n", result.certificate.primal, result.certificate.dual);
}
