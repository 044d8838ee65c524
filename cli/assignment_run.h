// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/assignment/solver.h"
#include "ballast/config/choices.h"

namespace ballast::cli {

// A solver on the CPU or on a GPU.
class AssignmentRun {
 public:
  virtual ~AssignmentRun() = default;

  // Takes problems of one size, type and bounds, and brings them to where they are solved. They
  // must outlive this object's use of them. UserError: as AssignmentSolver::solve, in part only
  // when they are solved.
  virtual void load(std::span<const assignment::AssignmentProblem> problems) = 0;
  // Solves all of them, a GPU in one launch, and returns the milliseconds that took; the results
  // come back after that.
  virtual double solve(std::span<const double> start_prices,
                       std::vector<assignment::Assignment>& results) = 0;
};

// How many threads are used where `wanted` are: at most the cores; 0: all of them.
size_t usable_threads(size_t wanted);

// What makes an AssignmentRun.
struct AssignmentRunOptions {
  assignment::SolverKind solver = assignment::SolverKind::kExact;
  config::DeviceChoice device = config::DeviceChoice::kCpu;  // or kCuda
  size_t threads = 0;                                        // as usable_threads takes it
  double gap = 0;                                            // as in experts::AssignOptions
};

// UserError: no such device here.
std::unique_ptr<AssignmentRun> make_assignment_run(const AssignmentRunOptions& options);

// --gap, of AssignmentRunOptions.
void add_gap_option(CLI::App& command, double& gap);

// What rounding is compared with: the sum over counted tokens of max_e |s_te|, of finite scores.
// UserError: a score that problem.non_finite refuses, as AssignmentSolver::solve says it.
double magnitude_of(const assignment::AssignmentProblem& problem);

}  // namespace ballast::cli
