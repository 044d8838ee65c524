// SPDX-License-Identifier: Apache-2.0
#include "cli/assignment_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ballast/system/parallel.h"
#include "cli/gpu_assignment_run.h"

namespace ballast::cli {
namespace {

class CpuRun final : public AssignmentRun {
 public:
  CpuRun(SolverKind kind, size_t threads) : solver_(make_solver(kind, threads)) {}

  void load(const AssignmentProblem& problem) override { problem_ = &problem; }

  double solve(std::span<const double> start_prices, Assignment& result) override {
    const auto start = std::chrono::steady_clock::now();
    solver_->solve(*problem_, start_prices, result);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

 private:
  std::unique_ptr<AssignmentSolver> solver_;
  const AssignmentProblem* problem_ = nullptr;
};

}  // namespace

size_t usable_threads(size_t wanted) {
  return wanted == 0 ? num_cores() : std::min(wanted, num_cores());
}

std::unique_ptr<AssignmentRun> make_assignment_run(SolverKind kind, DeviceChoice device,
                                                   size_t threads) {
  if (device == DeviceChoice::kCuda) return make_gpu_assignment_run(kind);
  return std::make_unique<CpuRun>(kind, usable_threads(threads));
}

double magnitude_of(const AssignmentProblem& problem) {
  const LoadBounds bounds;  // only rows are read
  ActiveRows rows;
  const ActiveProblem active = rows.read(problem, bounds, 1);
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
