// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated_solver.h"

#include <algorithm>

#include "ballast/assignment/heuristics_cuda.h"

namespace ballast::emulator {
namespace {

using assignment::AssignmentStatus;
using assignment::CudaAssignments;
using assignment::CudaProblems;

// Device memory of `count` numbers.
template <typename T>
class Array {
 public:
  explicit Array(size_t count) : memory_(poisoned(count * sizeof(T))) {}
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    std::ranges::copy(values, get());
  }
  T* get() const { return reinterpret_cast<T*>(memory_.get()); }
  std::vector<T> part(size_t index, size_t size) const {
    return {get() + index * size, get() + (index + 1) * size};
  }

 private:
  Memory memory_;
};

struct Results {
  Results(size_t problems, size_t tokens, size_t experts)
      : expert(problems * tokens),
        order(problems * tokens),
        place(problems * tokens),
        loads(problems * experts),
        prices(problems * experts),
        status(problems) {}
  CudaAssignments pointers() const {
    return {expert.get(), order.get(), place.get(), loads.get(), prices.get(), status.get()};
  }

  Array<int32_t> expert, order, place, loads;
  Array<double> prices;
  Array<AssignmentStatus> status;
};

void launch(const CudaProblems& problems, const Results& results, Solver solver,
            const assignment::ExactCudaOptions& options) {
  if (solver == Solver::kAuction) {
    const Array<char> workspace(assignment::auction_cuda_workspace(problems));
    assignment::launch_auction_cuda(problems, results.pointers(), workspace.get(), nullptr);
  } else if (solver == Solver::kGreedy) {
    const Array<char> workspace(assignment::greedy_cuda_workspace(problems));
    assignment::launch_greedy_cuda(problems, results.pointers(), workspace.get(), nullptr);
  } else {
    const size_t bytes = assignment::exact_cuda_workspace(problems, options);
    const Array<char> workspace(bytes);
    assignment::launch_exact_cuda(problems, results.pointers(), options, workspace.get(), bytes,
                                  nullptr);
  }
}

Solution solution_of(const Results& results, size_t p, const Problems& problems) {
  const auto tokens = static_cast<size_t>(problems.tokens),
             experts = static_cast<size_t>(problems.experts);
  const AssignmentStatus& status = results.status.get()[p];
  Solution solution{.result = {.expert_of_token = results.expert.part(p, tokens),
                               .tokens_by_expert = results.order.part(p, tokens),
                               .place_of_token = results.place.part(p, tokens),
                               .loads = results.loads.part(p, experts),
                               .prices = results.prices.part(p, experts),
                               .certificate = {},
                               .replaced_scores = status.replaced},
                    .status = status};
  std::vector<double>& prices = solution.result.prices;
  const double least = *std::ranges::min_element(prices);
  for (double& price : prices) price -= least;
  assignment::Certificate& certificate = solution.result.certificate;
  certificate.valid = status.valid != 0;
  certificate.primal = status.primal;
  certificate.dual = status.dual;
  certificate.gap = status.gap;
  certificate.blind = status.blind;
  return solution;
}

template <typename T>
const T* or_null(const std::vector<T>& given, const Array<T>& array) {
  return given.empty() ? nullptr : array.get();
}

}  // namespace

size_t Problems::count() const {
  return scores.size() / static_cast<size_t>(tokens) / static_cast<size_t>(experts);
}

assignment::AssignmentProblem Problems::problem(size_t index) const {
  const auto rows = static_cast<size_t>(tokens);
  const auto counts = std::span<const uint8_t>(counted);
  return {.scores = assignment::score_matrix(
              scores.data() + index * rows * static_cast<size_t>(experts), tokens, experts),
          .bounds = bounds.lower.empty() ? assignment::equal_loads(tokens, experts) : bounds,
          .counted = counted.empty() ? counts : counts.subspan(index * rows, rows),
          .non_finite = non_finite};
}

bool Solution::operator==(const Solution& other) const {
  return result.expert_of_token == other.result.expert_of_token &&
         result.tokens_by_expert == other.result.tokens_by_expert &&
         result.place_of_token == other.result.place_of_token &&
         result.loads == other.result.loads && result.prices == other.result.prices &&
         status.code == other.status.code && status.primal == other.status.primal &&
         status.gap == other.status.gap && status.dual == other.status.dual &&
         status.blind == other.status.blind;
}

std::vector<Solution> solve(const Problems& given, Solver solver,
                            const assignment::ExactCudaOptions& options) {
  // Bounds, even equal ones, are not for the solver on chip.
  const assignment::LoadBounds bounds =
      solver == Solver::kGeneral ? given.problem(0).bounds : given.bounds;
  const Array<float> scores(given.scores);
  const Array<int32_t> lower(bounds.lower), upper(bounds.upper);
  const Array<uint8_t> counted(given.counted);
  const Array<double> start(given.start_prices);
  const size_t count = given.count();
  const CudaProblems problems{.scores = scores.get(),
                              .problems = static_cast<int32_t>(count),
                              .tokens = given.tokens,
                              .experts = given.experts,
                              .problem_stride = static_cast<int64_t>(given.tokens) * given.experts,
                              .token_stride = given.experts,
                              .lower = or_null(bounds.lower, lower),
                              .upper = or_null(bounds.upper, upper),
                              .counted = or_null(given.counted, counted),
                              .start_prices = or_null(given.start_prices, start),
                              .start_stride = given.experts,
                              .non_finite = given.non_finite};
  const Results results(count, static_cast<size_t>(given.tokens),
                        static_cast<size_t>(given.experts));
  launch(problems, results, solver, options);
  std::vector<Solution> solutions;
  for (size_t p = 0; p < count; ++p) solutions.push_back(solution_of(results, p, given));
  return solutions;
}

}  // namespace ballast::emulator
