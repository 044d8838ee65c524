// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ballast/assignment/solver.h"
#include "ballast/config/choices.h"

namespace ballast::cli {

// A solver on the CPU or on a GPU.
class AssignmentRun {
 public:
  virtual ~AssignmentRun() = default;

  // Takes a problem, and brings it to where it is solved. `problem` must outlive this object's use
  // of it. UserError: as AssignmentSolver::solve, in part only when it is solved.
  virtual void load(const assignment::AssignmentProblem& problem) = 0;
  // Solves it and returns the milliseconds that took; the result comes back after that.
  virtual double solve(std::span<const double> start_prices, assignment::Assignment& result) = 0;
};

// How many threads are used where `wanted` are: at most the cores; 0: all of them.
size_t usable_threads(size_t wanted);

// `device`: kCpu or kCuda. `threads`: as usable_threads takes it. UserError: no such device here.
std::unique_ptr<AssignmentRun> make_assignment_run(assignment::SolverKind kind,
                                                   config::DeviceChoice device, size_t threads);

// What gaps are compared with: the sum over counted tokens of max_e |s_te|, of finite scores.
// UserError: a score that problem.non_finite refuses, as AssignmentSolver::solve says it.
double magnitude_of(const assignment::AssignmentProblem& problem);

}  // namespace ballast::cli
