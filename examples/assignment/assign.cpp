// SPDX-License-Identifier: Apache-2.0
// Gives each of six tokens one of two experts, three each, so that the sum of scores is largest.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "ballast/assignment/solver.h"

namespace assignment = ballast::assignment;

int main() {
  const std::vector<float> scores = {5, 1, 4, 3, 4, 0, 3, 2.5F, 2, 2, 1, 3};  // [6, 2]
  assignment::AssignmentProblem problem;
  problem.scores = assignment::score_matrix(scores.data(), 6, 2);

  const auto solver = assignment::make_solver(assignment::SolverKind::kExact);
  assignment::Assignment result;
  solver->solve(problem, {}, result);
  for (size_t token = 0; token < result.expert_of_token.size(); ++token)
    std::printf("token %zu: expert %d\n", token, result.expert_of_token[token]);
  std::printf("sum %g, at most %g\n", result.certificate.primal, result.certificate.dual);

  // Experts need not be equal: the first may have two tokens, the second all. The prices of the
  // last time are a good start.
  const std::vector<int64_t> capacities = {2, 6};
  problem.bounds = assignment::at_most(capacities, 6);
  solver->solve(problem, std::vector<double>(result.prices), result);
  std::printf("at most two for the first: %d and %d, sum %g, at most %g\n", result.loads[0],
              result.loads[1], result.certificate.primal, result.certificate.dual);

  // What is wrong with a problem is said by name.
  problem.scores.experts = 0;
  try {
    solver->solve(problem, {}, result);
  } catch (const std::exception& error) {
    std::printf("refused: %s\n", error.what());
  }
}
