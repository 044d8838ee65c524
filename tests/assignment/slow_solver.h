// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "ballast/assignment/problem.h"

// Two slow solvers that define what is right, for row-major fp32 problems with bounds filled in.
namespace ballast::test {

inline float score_of(const assignment::AssignmentProblem& problem, int64_t token, int64_t expert) {
  return static_cast<const float*>(
      problem.scores.data)[token * problem.scores.token_stride + expert];
}

inline bool is_counted(const assignment::AssignmentProblem& problem, int64_t token) {
  return problem.counted.empty() || problem.counted[static_cast<size_t>(token)] != 0;
}

// What gaps are measured by: the sum over counted tokens of max_e |s_te|.
inline double magnitude_of(const assignment::AssignmentProblem& problem) {
  double sum = 0;
  for (int64_t t = 0; t < problem.scores.tokens; ++t) {
    double largest = 0;
    for (int64_t e = 0; e < problem.scores.experts && is_counted(problem, t); ++e) {
      const double magnitude = std::fabs(score_of(problem, t, e));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    sum += largest;
  }
  return sum;
}

// What a blind spread is worth: over counted tokens the mean of the allowed scores, each expert
// with the weight of its upper bound.
inline long double blind_value(const assignment::AssignmentProblem& problem) {
  long double value = 0;
  for (int64_t t = 0; t < problem.scores.tokens; ++t) {
    long double sum = 0, weights = 0;
    for (int64_t e = 0; e < problem.scores.experts && is_counted(problem, t); ++e) {
      if (std::isinf(score_of(problem, t, e))) continue;
      const int64_t weight =
          std::min<int64_t>(problem.bounds.upper[static_cast<size_t>(e)], problem.scores.tokens);
      sum += static_cast<long double>(weight) * static_cast<long double>(score_of(problem, t, e));
      weights += static_cast<long double>(weight);
    }
    if (weights > 0) value += sum / weights;
  }
  return value;
}

// Tries every assignment of every token. Nothing: none keeps to the bounds.
class BruteForce {
 public:
  explicit BruteForce(const assignment::AssignmentProblem& problem)
      : problem_(problem), loads_(static_cast<size_t>(problem.scores.experts)) {}

  std::optional<long double> optimum() {
    try_token(0, 0);
    if (!found_) return std::nullopt;
    return best_;
  }

 private:
  void try_token(int64_t token, long double value) {
    if (token == problem_.scores.tokens) {
      for (size_t e = 0; e < loads_.size(); ++e)
        if (loads_[e] < problem_.bounds.lower[e]) return;
      best_ = found_ ? std::max(best_, value) : value;
      found_ = true;
      return;
    }
    for (size_t e = 0; e < loads_.size(); ++e) {
      const bool counted = is_counted(problem_, token);
      const float score = counted ? score_of(problem_, token, static_cast<int64_t>(e)) : 0;
      if (loads_[e] == problem_.bounds.upper[e] || std::isinf(score)) continue;
      ++loads_[e];
      try_token(token + 1, value + static_cast<long double>(score));
      --loads_[e];
    }
  }

  const assignment::AssignmentProblem& problem_;
  std::vector<int32_t> loads_;
  // Not optional<long double>: without inlining GCC takes its value for uninitialised.
  bool found_ = false;
  long double best_ = 0;
};

// Successive shortest paths, each by Bellman-Ford on lengths that are made afresh. Scores become
// whole numbers of 2^-50 of the largest: the optimum is right to T * 2^-50 of that, and nothing is
// rounded after. Each expert has two columns, the places that must be filled and those that may;
// fillers, which score nothing, take what tokens leave of the latter.
class SlowSolver {
 public:
  explicit SlowSolver(const assignment::AssignmentProblem& problem) : problem_(problem) {
    for (int64_t e = 0; e < problem.scores.experts; ++e) {
      const int64_t lower = problem.bounds.lower[static_cast<size_t>(e)];
      const int64_t upper = problem.bounds.upper[static_cast<size_t>(e)];
      columns_.push_back({e, true, lower, {}});
      columns_.push_back({e, false, std::min(upper, problem.scores.tokens) - lower, {}});
    }
    float largest = 0;
    for (int64_t t = 0; t < problem.scores.tokens; ++t)
      for (int64_t e = 0; e < problem.scores.experts && is_counted(problem, t); ++e)
        if (std::isfinite(score_of(problem, t, e)))
          largest = std::max(largest, std::fabs(score_of(problem, t, e)));
    if (largest > 0) unit_ = std::scalbn(1.0L, 50 - std::ilogb(largest) - 1);
  }

  // Nothing: no assignment keeps to the bounds and to what is allowed.
  std::optional<long double> optimum() {
    int64_t rows = 0;
    for (const Column& column : columns_) rows += column.places;
    for (int64_t row = 0; row < rows; ++row)
      if (!insert(row)) return std::nullopt;
    long double value = 0;
    for (const Column& column : columns_)
      for (const int64_t row : column.rows)
        if (row < problem_.scores.tokens && is_counted(problem_, row))
          value += static_cast<long double>(score_of(problem_, row, column.expert));
    return value;
  }

 private:
  struct Column {
    int64_t expert;
    bool required;
    int64_t places;
    std::vector<int64_t> rows;
  };
  struct Step {
    int64_t length = kFar;
    size_t from = 0;  // the column before, or this one: the path starts here
    int64_t row = -1;
  };
  static constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

  // Rows past the tokens are fillers. Nothing: not allowed.
  std::optional<int64_t> cost(int64_t row, const Column& column) const {
    if (row >= problem_.scores.tokens)
      return column.required ? std::nullopt : std::optional<int64_t>(0);
    if (!is_counted(problem_, row)) return 0;
    const float score = score_of(problem_, row, column.expert);
    if (std::isinf(score)) return std::nullopt;
    return -static_cast<int64_t>(std::llrint(static_cast<long double>(score) * unit_));
  }

  // The cheapest row of column `a` to move to column `b`.
  Step move(size_t a, size_t b) const {
    Step best{.from = a};
    for (const int64_t row : columns_[a].rows) {
      const auto to = cost(row, columns_[b]);
      if (to && *to - *cost(row, columns_[a]) < best.length)
        best = {*to - *cost(row, columns_[a]), a, row};
    }
    return best;
  }

  bool insert(int64_t row) {
    const size_t count = columns_.size();
    std::vector<Step> steps(count), moves(count * count);
    for (size_t a = 0; a < count; ++a) {
      if (columns_[a].places == 0) continue;
      steps[a] = {cost(row, columns_[a]).value_or(kFar), a, row};
      for (size_t b = 0; b < count; ++b)
        if (a != b && columns_[b].places > 0) moves[a * count + b] = move(a, b);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t a = 0; a < count; ++a) {
        for (size_t b = 0; b < count && steps[a].length != kFar; ++b) {
          const Step& next = moves[a * count + b];
          if (next.length == kFar || steps[a].length + next.length >= steps[b].length) continue;
          steps[b] = {steps[a].length + next.length, a, next.row};
          changed = true;
        }
      }
    }
    return augment(steps);
  }

  bool augment(const std::vector<Step>& steps) {
    size_t end = steps.size();
    for (size_t a = 0; a < steps.size(); ++a) {
      if (std::ssize(columns_[a].rows) == columns_[a].places || steps[a].length == kFar) continue;
      if (end == steps.size() || steps[a].length < steps[end].length) end = a;
    }
    if (end == steps.size()) return false;
    for (;; end = steps[end].from) {
      columns_[end].rows.push_back(steps[end].row);
      if (steps[end].from == end) return true;
      std::erase(columns_[steps[end].from].rows, steps[end].row);
    }
  }

  const assignment::AssignmentProblem& problem_;
  long double unit_ = 1;
  std::vector<Column> columns_;
};

inline std::optional<long double> brute_force(const assignment::AssignmentProblem& problem) {
  return BruteForce(problem).optimum();
}

inline std::optional<long double> slow_optimum(const assignment::AssignmentProblem& problem) {
  return SlowSolver(problem).optimum();
}

}  // namespace ballast::test
