// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/assignment/active_problem.h"
#include "ballast/assignment/certificate.h"
#include "ballast/assignment/problem.h"

namespace ballast::assignment {

struct Assignment {
  std::vector<int32_t> expert_of_token;   // [T]
  std::vector<int32_t> tokens_by_expert;  // [T] sorted by expert, within an expert in token order
  std::vector<int32_t> place_of_token;    // [T] its inverse: token t stands at place_of_token[t]
  std::vector<int32_t> loads;             // [E] tokens of each expert, padding included
  std::vector<double> prices;             // [E] the lowest is 0; a start for the next batch
  Certificate certificate;
  int64_t replaced_scores = 0;  // NaN and inf taken as the lowest score (NonFinite::kLowest)
};

// One method with its memory: after the first calls of a size, with scores of one sort, it
// allocates nothing. The result depends on the arguments alone. One thread at a time.
class AssignmentSolver {
 public:
  explicit AssignmentSolver(size_t threads = 1) : threads_(threads) {}
  virtual ~AssignmentSolver() = default;

  // `start_prices`: [E], for example those of the last batch, or empty. They may make the exact
  // solver faster, never wrong. UserError: a bad problem; a score that is refused (it names the
  // first token and expert); no assignment without a forbidden pair. Then `result` is unspecified.
  void solve(const AssignmentProblem& problem, std::span<const double> start_prices,
             Assignment& result);

 protected:
  // Chooses an expert for each row, and prices.
  virtual void choose(const ActiveProblem& problem, std::span<const double> start_prices,
                      Choice& choice) = 0;

  // Whether the certificate is good enough; if not, `choose` is called once more.
  virtual bool accept(const ActiveProblem& /*problem*/, const Certificate& /*certificate*/) {
    return true;
  }

  size_t threads() const { return threads_; }

 private:
  const LoadBounds& equal_loads_of(const ScoreMatrix& scores);
  void place_tokens(const AssignmentProblem& problem, const LoadBounds& bounds, Assignment& result);

  size_t threads_;
  ActiveRows rows_;
  Choice choice_;
  Certifier certifier_;
  LoadBounds equal_;  // of the last shape, for problems without bounds of their own
  int64_t equal_tokens_ = -1;
};

enum class SolverKind : uint8_t { kExact, kAuction, kGreedy, kSinkhorn };

SolverKind parse_solver_kind(std::string_view name);  // UserError lists the names
std::string_view solver_name(SolverKind kind);        // "exact", "auction", "greedy", "sinkhorn"

std::unique_ptr<AssignmentSolver> make_solver(SolverKind kind, size_t threads = 1);

}  // namespace ballast::assignment
