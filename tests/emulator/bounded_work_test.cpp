// SPDX-License-Identifier: Apache-2.0
// The general solver with a limit on its work, on an emulated GPU.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/expect_solution.h"
#include "tests/emulator/problems.h"

namespace ballast::emulator {
namespace {

using assignment::AssignmentStatus;

TEST(BoundedWorkEmulated, WhatIsNotOptimalIsValidAndKnowsItsGap) {
  const Problems problems = problems_of(300, 60, {kThreeValues, kGauss}, 1);
  const double optimum = solved_on_cpu(problems.problem(0)).certificate.primal;
  for (const int64_t work : {1, 40'000, 1 << 25}) {
    SCOPED_TRACE(work);
    set({});
    const std::vector<Solution> solutions = solve(problems, Solver::kGeneral, {.max_work = work});
    if (work == 1 << 25) expect_optimal(problems, solutions);
    for (size_t p = 0; p < solutions.size(); ++p) {
      expect_true(problems.problem(p), solutions[p]);
      test::expect_valid(problems.problem(p), solutions[p].result, "");
    }
    EXPECT_LE(solutions[0].status.primal, optimum + 1e-9 * 600);
    if (work == 1) {
      EXPECT_EQ(solutions[0].status.code, AssignmentStatus::kNotConverged);
    }
  }
}

// The limit is a count, which the order of threads does not change.
TEST(BoundedWorkEmulated, EndsAtTheSameBitsInAnyOrderOfThreads) {
  for (const auto& [experts, sort] : {std::pair{20, kGauss}, {60, kGauss}, {60, kClustered}}) {
    const Problems problems = problems_of(experts == 20 ? 400 : 300, experts, {sort}, 11);
    std::vector<Solution> first;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(std::to_string(experts) + " experts, seed " + std::to_string(seed));
      set({.seed = seed});
      const std::vector<Solution> solutions =
          solve(problems, Solver::kGeneral, {.max_work = 40'000});
      if (seed == 1) first = solutions;
      EXPECT_TRUE(solutions == first);
    }
  }
}

}  // namespace
}  // namespace ballast::emulator
