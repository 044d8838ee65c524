// SPDX-License-Identifier: Apache-2.0
#include "python/c/assign.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "ballast/assignment/certificate.h"
#include "ballast/assignment/solver.h"

namespace ballast::assignment {
namespace {

AssignmentProblem problem_of(const ballast_problem& given) {
  AssignmentProblem problem;
  problem.scores = {.data = given.scores,
                    .type = static_cast<ScoreType>(given.type),
                    .tokens = given.tokens,
                    .experts = given.experts,
                    .token_stride = given.token_stride,
                    .expert_stride = given.expert_stride};
  const auto experts = static_cast<size_t>(given.experts),
             tokens = static_cast<size_t>(given.tokens);
  if (given.capacities != nullptr)
    problem.bounds = at_most({given.capacities, experts}, given.tokens);
  if (given.counted != nullptr) problem.counted = {given.counted, tokens};
  problem.non_finite = given.forbids != 0 ? NonFinite::kForbid : NonFinite::kReject;
  return problem;
}

void solve(const ballast_problem& given, ballast_result& result) {
  // Each thread keeps its solver's memory.
  thread_local const std::unique_ptr<AssignmentSolver> solver = make_solver(SolverKind::kExact);
  thread_local Assignment found;
  solver->solve(problem_of(given), {}, found);
  std::ranges::copy(found.expert_of_token, result.expert_of_token);
  std::ranges::copy(found.loads, result.loads);
  std::ranges::copy(found.prices, result.prices);
  const Certificate& proof = found.certificate;
  result.valid = proof.valid ? 1 : 0;
  result.primal = proof.primal;
  result.dual = proof.dual;
  result.gap = proof.gap;
  result.relative_gap = relative_gap(proof.primal, proof.dual, proof.blind);
}

}  // namespace
}  // namespace ballast::assignment

extern "C" int ballast_assign(const ballast_problem* problem, ballast_result* result, char* message,
                              size_t message_size) {
  try {
    ballast::assignment::solve(*problem, *result);
    return 0;
  } catch (const std::exception& error) {
    if (message_size > 0) {
      const std::string_view text = std::string_view(error.what()).substr(0, message_size - 1);
      *std::ranges::copy(text, message).out = '\0';
    }
    return 1;
  }
}
