// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ballast/assignment/certificate.h"
#include "ballast/assignment/solver.h"
#include "tests/assignment/expect_assignment.h"
#include "tests/emulator/emulated_solver.h"

// What solutions of the emulated GPU must be.
namespace ballast::emulator {

inline assignment::Assignment solved_on_cpu(
    const assignment::AssignmentProblem& problem,
    assignment::SolverKind kind = assignment::SolverKind::kExact) {
  assignment::Assignment result;
  assignment::make_solver(kind)->solve(problem, {}, result);
  return result;
}

// What an assignment and its prices are worth, found again on the CPU in double.
inline assignment::Certificate certified(const assignment::AssignmentProblem& problem,
                                         const assignment::Assignment& result) {
  assignment::ActiveRows rows;
  const assignment::ActiveProblem active = rows.read(problem, problem.bounds, 1);
  assignment::Choice choice{.expert_of_row = {}, .prices = result.prices};
  for (int32_t row = 0; row < active.tokens; ++row) {
    const int32_t token = rows.tokens().empty() ? row : rows.tokens()[static_cast<size_t>(row)];
    choice.expert_of_row.push_back(result.expert_of_token[static_cast<size_t>(token)]);
  }
  return assignment::Certifier().certify(active, choice, result.loads, 1);
}

// It has all that an assignment has, and what it says of itself is true. For finite scores.
inline void expect_true(const assignment::AssignmentProblem& problem, const Solution& solution) {
  test::expect_sound(problem, solution.result, "");
  const assignment::Certificate found = certified(problem, solution.result);
  // Sums in another order, and prices that have been moved to begin with 0.
  const double rounding = 1e-11 * test::magnitude_of(problem);
  const assignment::Certificate& said = solution.result.certificate;
  EXPECT_EQ(said.valid, found.valid);
  EXPECT_NEAR(said.primal, found.primal, rounding);
  EXPECT_NEAR(said.dual, found.dual, rounding);
  EXPECT_NEAR(said.gap, found.gap, rounding);
  EXPECT_NEAR(said.blind, found.blind, rounding);
}

// Each is as good as the CPU's, and proves it.
inline void expect_optimal(const Problems& problems, const std::vector<Solution>& solutions) {
  for (size_t p = 0; p < solutions.size(); ++p) {
    SCOPED_TRACE("problem " + std::to_string(p));
    const assignment::AssignmentProblem problem = problems.problem(p);
    EXPECT_EQ(solutions[p].status.code, assignment::AssignmentStatus::kOk);
    expect_true(problem, solutions[p]);
    test::expect_exact(problem, solutions[p].result, "");
    EXPECT_NEAR(solutions[p].status.primal, solved_on_cpu(problem).certificate.primal,
                1e-9 * test::magnitude_of(problem));
  }
}

// Each is balanced and within `gap`, or says that it is not.
inline void expect_within_or_said(const Problems& problems, const std::vector<Solution>& solutions,
                                  double gap) {
  for (size_t p = 0; p < solutions.size(); ++p) {
    SCOPED_TRACE("problem " + std::to_string(p));
    const assignment::AssignmentProblem problem = problems.problem(p);
    expect_true(problem, solutions[p]);
    test::expect_valid(problem, solutions[p].result, "");
    const assignment::Certificate found = certified(problem, solutions[p].result);
    const bool within =
        found.gap <= gap * (found.dual - found.blind) + 1e-11 * test::magnitude_of(problem);
    EXPECT_EQ(solutions[p].status.code, within ? assignment::AssignmentStatus::kOk
                                               : assignment::AssignmentStatus::kNotConverged);
  }
}

// Each is balanced and within `gap`.
inline void expect_within(const Problems& problems, const std::vector<Solution>& solutions,
                          double gap) {
  expect_within_or_said(problems, solutions, gap);
  for (const Solution& solution : solutions)
    EXPECT_EQ(solution.status.code, assignment::AssignmentStatus::kOk);
}

}  // namespace ballast::emulator
