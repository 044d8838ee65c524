// SPDX-License-Identifier: Apache-2.0
// Prints a checksum of the exact solver's assignment and prices for each of a few dozen problems.
// tests/assignment/instruction_sets_test.cpp compares builds for different processors.
#include <cstdio>
#include <span>

#include "ballast/assignment/exact_solver.h"
#include "ballast/system/checksum.h"
#include "tests/assignment/random_problem.h"

int main() {
  ballast::assignment::ExactSolver solver;
  ballast::assignment::Assignment result;
  for (uint64_t i = 0; i < 60; ++i) {
    const ballast::test::OwnedProblem made = ballast::test::ProblemMaker(77, i, 2000, 140).make();
    solver.solve(made.problem(), made.start_prices, result);
    const uint64_t experts = ballast::checksum(std::as_bytes(std::span(result.expert_of_token)));
    const uint64_t prices = ballast::checksum(std::as_bytes(std::span(result.prices)));
    std::printf("%zu %016lx %016lx\n", static_cast<size_t>(i), experts, prices);
  }
  return 0;
}
