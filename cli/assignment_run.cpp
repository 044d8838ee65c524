// SPDX-License-Identifier: Apache-2.0
#include "cli/assignment_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ballast/system/parallel.h"
#include "cli/at_least.h"
#include "cli/gpu_assignment_run.h"

namespace ballast::cli {
namespace {

class CpuRun final : public AssignmentRun {
 public:
  CpuRun(assignment::SolverKind kind, size_t threads)
      : solver_(assignment::make_solver(kind, threads)) {}

  void load(std::span<const assignment::AssignmentProblem> problems) override {
    problems_ = problems;
  }

  double solve(std::span<const double> start_prices,
               std::vector<assignment::Assignment>& results) override {
    results.resize(problems_.size());
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < problems_.size(); ++i)
      solver_->solve(problems_[i], start_prices, results[i]);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

 private:
  std::unique_ptr<assignment::AssignmentSolver> solver_;
  std::span<const assignment::AssignmentProblem> problems_;
};

}  // namespace

size_t usable_threads(size_t wanted) {
  return wanted == 0 ? num_cores() : std::min(wanted, num_cores());
}

std::unique_ptr<AssignmentRun> make_assignment_run(const AssignmentRunOptions& options) {
  if (options.device == config::DeviceChoice::kCuda)
    return make_gpu_assignment_run(options.solver, options.gap);
  return std::make_unique<CpuRun>(options.solver, usable_threads(options.threads));
}

void add_gap_option(CLI::App& command, double& gap) {
  command
      .add_option("--gap", gap,
                  "exact on a GPU: may end this far from the optimum, of what that has above a "
                  "blind spread (0.001: 0.1 %); 0: exact, as on the CPU always")
      ->check(from_to(0, 0.5))
      ->capture_default_str()
      ->type_name("G");
}

double magnitude_of(const assignment::AssignmentProblem& problem) {
  const assignment::LoadBounds bounds;  // only rows are read
  assignment::ActiveRows rows;
  const assignment::ActiveProblem active = rows.read(problem, bounds, 1);
  double sum = 0;
  for (int64_t t = 0; t < active.tokens; ++t) {
    float largest = 0;
    for (int64_t e = 0; e < active.experts; ++e) {
      const float magnitude = std::fabs(active.row(t)[e]);
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    sum += largest;
  }
  return sum;
}

}  // namespace ballast::cli
