// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/solver.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ballast/system/error.h"

namespace ballast::assignment {
namespace {

// Padding first brings experts up to their lower bounds, then fills what is left, in token order.
void place_padding(const AssignmentProblem& problem, const LoadBounds& bounds, Assignment& result) {
  const auto experts = static_cast<size_t>(problem.scores.experts);
  size_t expert = 0;
  const auto next_below = [&](const std::vector<int32_t>& bound) {
    while (expert < experts && result.loads[expert] >= bound[expert]) ++expert;
    return expert < experts;
  };
  bool required = true;
  for (size_t token = 0; token < problem.counted.size(); ++token) {
    if (problem.counted[token] != 0) continue;
    if (required && !next_below(bounds.lower)) {
      required = false;
      expert = 0;
    }
    // A method that overfills experts (greedy) may leave no room: then any expert will do.
    if (!required && !next_below(bounds.upper)) expert = experts - 1;
    result.expert_of_token[token] = static_cast<int32_t>(expert);
    ++result.loads[expert];
  }
}

// A counting sort: stable, so the order within an expert is the tokens' own.
void sort_by_expert(Assignment& result) {
  const size_t tokens = result.expert_of_token.size();
  result.tokens_by_expert.resize(tokens);
  result.place_of_token.resize(tokens);
  int32_t begin = 0;
  for (int32_t& load : result.loads) begin += std::exchange(load, begin);  // now: first places
  for (size_t token = 0; token < tokens; ++token) {
    const int32_t place = result.loads[result.expert_of_token[token]]++;
    result.place_of_token[token] = place;
    result.tokens_by_expert[place] = static_cast<int32_t>(token);
  }
  int32_t previous = 0;  // ends of each expert's places become its number of places again
  for (int32_t& load : result.loads) {
    const int32_t end = load;
    load = end - previous;
    previous = end;
  }
}

}  // namespace

const LoadBounds& AssignmentSolver::equal_loads_of(const ScoreMatrix& scores) {
  if (equal_tokens_ != scores.tokens || std::ssize(equal_.upper) != scores.experts) {
    equal_ = equal_loads(scores.tokens, scores.experts);
    equal_tokens_ = scores.tokens;
  }
  return equal_;
}

void AssignmentSolver::place_tokens(const AssignmentProblem& problem, const LoadBounds& bounds,
                                    Assignment& result) {
  result.expert_of_token.resize(static_cast<size_t>(problem.scores.tokens));
  result.loads.assign(static_cast<size_t>(problem.scores.experts), 0);
  for (size_t row = 0; row < choice_.expert_of_row.size(); ++row) {
    const int32_t expert = choice_.expert_of_row[row];
    result.expert_of_token[rows_.tokens().empty() ? row : rows_.tokens()[row]] = expert;
    ++result.loads[expert];
  }
  place_padding(problem, bounds, result);
}

void AssignmentSolver::solve(const AssignmentProblem& problem, std::span<const double> start_prices,
                             Assignment& result) {
  const ScoreMatrix& scores = problem.scores;
  check_shape(problem);
  const bool given = !problem.bounds.upper.empty() || !problem.bounds.lower.empty();
  const LoadBounds& bounds = given ? problem.bounds : equal_loads_of(scores);
  check_bounds(bounds, scores.tokens, scores.experts);
  if (!start_prices.empty() && start_prices.size() != static_cast<size_t>(scores.experts)) {
    fail("{} start prices, but scores of {} experts", start_prices.size(), scores.experts);
  }
  for (size_t expert = 0; expert < start_prices.size(); ++expert) {
    if (!std::isfinite(start_prices[expert])) {
      fail("the start price of expert {} is not finite", expert);
    }
  }
  const ActiveProblem active = rows_.read(problem, bounds, threads_);
  choice_.expert_of_row.resize(static_cast<size_t>(active.tokens));
  choice_.prices.assign(static_cast<size_t>(active.experts), 0.0);
  do {
    choose(active, start_prices, choice_);
    place_tokens(problem, bounds, result);
    result.certificate = certifier_.certify(active, choice_, result.loads, threads_);
  } while (!accept(active, result.certificate));
  sort_by_expert(result);
  result.prices.assign(choice_.prices.begin(), choice_.prices.end());
  result.replaced_scores = rows_.replaced();
}

}  // namespace ballast::assignment
