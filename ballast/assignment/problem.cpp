// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/problem.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ballast/system/error.h"

namespace ballast::assignment {

ScoreMatrix score_matrix(const float* data, int64_t tokens, int64_t experts) {
  return {.data = data, .tokens = tokens, .experts = experts, .token_stride = experts};
}

LoadBounds equal_loads(int64_t tokens, int64_t experts) {
  if (experts < 1) fail("loads of {} experts; at least one is needed", experts);
  if (tokens < 0) fail("loads of a negative number of tokens: {}", tokens);
  const auto floor = static_cast<int32_t>(tokens / experts);
  const int32_t ceil = floor + (tokens % experts != 0 ? 1 : 0);
  return {.lower = std::vector<int32_t>(experts, floor),
          .upper = std::vector<int32_t>(experts, ceil)};
}

LoadBounds at_most(std::span<const int64_t> capacities, int64_t tokens) {
  LoadBounds bounds;
  int64_t places = 0;
  for (size_t expert = 0; expert < capacities.size(); ++expert) {
    const int64_t capacity = capacities[expert];
    if (capacity < 0) fail("capacity of expert {} is negative: {}", expert, capacity);
    // An expert never gets more than all tokens; this also keeps the sum from overflowing.
    const int64_t useful = std::min(capacity, tokens);
    places += useful;
    bounds.lower.push_back(0);
    bounds.upper.push_back(static_cast<int32_t>(useful));
  }
  if (places < tokens) fail("capacities give room for {} tokens, but there are {}", places, tokens);
  if (places == tokens) bounds.lower = bounds.upper;
  return bounds;
}

void check_bounds(const LoadBounds& bounds, int64_t tokens, int64_t experts) {
  const auto size = static_cast<size_t>(experts);
  if (bounds.lower.size() != size || bounds.upper.size() != size) {
    fail("load bounds of {} and {} experts, but scores of {}", bounds.lower.size(),
         bounds.upper.size(), experts);
  }
  int64_t lower = 0;
  int64_t upper = 0;
  for (size_t expert = 0; expert < size; ++expert) {
    if (bounds.lower[expert] < 0 || bounds.upper[expert] < bounds.lower[expert]) {
      fail("load bounds of expert {} are not a range: {} to {}", expert, bounds.lower[expert],
           bounds.upper[expert]);
    }
    lower += bounds.lower[expert];
    upper += bounds.upper[expert];
  }
  if (tokens < lower || upper < tokens) {
    fail("load bounds ask for {} to {} tokens in all, but there are {}", lower, upper, tokens);
  }
}

void check_shape(const AssignmentProblem& problem) {
  const ScoreMatrix& scores = problem.scores;
  if (scores.tokens < 0) fail("scores with a negative number of tokens: {}", scores.tokens);
  if (scores.experts < 1) fail("scores of {} experts; at least one is needed", scores.experts);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (scores.tokens > kMost || scores.experts > kMost) {
    fail("scores [{}, {}] are larger than tokens and experts can be numbered (2^31 - 1)",
         scores.tokens, scores.experts);
  }
  if (scores.data == nullptr && scores.tokens > 0) fail("scores without memory");
  if (!problem.counted.empty() && problem.counted.size() != static_cast<size_t>(scores.tokens)) {
    fail("a mask of {} tokens, but scores of {}", problem.counted.size(), scores.tokens);
  }
}

void fail_infeasible() {
  fail("no assignment keeps to the load bounds without a forbidden pair (score -inf)");
}

}  // namespace ballast::assignment
