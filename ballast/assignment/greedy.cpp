// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/greedy.h"

#include <limits>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The largest score, in vector lanes, then its first place.
BALLAST_VECTOR_CLONES
int32_t best_expert(const float* row, int64_t experts) {
  Floats largest = Floats{} + kForbidden;
  int64_t e = 0;
  for (; e + kLanes <= experts; e += kLanes) largest = larger(largest, load_lanes(row + e));
  float best = largest_of(largest);
  for (; e < experts; ++e) best = row[e] > best ? row[e] : best;
  for (e = 0; row[e] != best;) ++e;
  return static_cast<int32_t>(e);
}

}  // namespace

void GreedySolver::choose(const ActiveProblem& problem, std::span<const double>, Choice& choice) {
  for_row_blocks(problem, threads(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int32_t expert = best_expert(problem.row(row), problem.experts);
      if (problem.row(row)[expert] == kForbidden) fail_infeasible();
      choice.expert_of_row[row] = expert;
    }
  });
}

}  // namespace ballast::assignment
