// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ballast/assignment/solver.h"
#include "tests/assignment/slow_solver.h"

namespace ballast::test {

// What every result promises, whatever made it, for fp32 row-major problems with bounds filled in:
// experts in range, loads counted, a stable order and its inverse, prices from 0 on, a certificate
// that says what the assignment is. `what` is for messages.
inline void expect_sound(const assignment::AssignmentProblem& problem,
                         const assignment::Assignment& result, const std::string& what) {
  const auto tokens = static_cast<size_t>(problem.scores.tokens);
  const auto experts = static_cast<size_t>(problem.scores.experts);
  ASSERT_EQ(result.expert_of_token.size(), tokens) << what;
  ASSERT_EQ(result.tokens_by_expert.size(), tokens) << what;
  ASSERT_EQ(result.place_of_token.size(), tokens) << what;
  ASSERT_EQ(result.loads.size(), experts) << what;
  ASSERT_EQ(result.prices.size(), experts) << what;
  std::vector<int32_t> loads(experts), order(tokens);
  long double primal = 0;
  bool allowed = true;
  for (size_t t = 0; t < tokens; ++t) {
    const int32_t expert = result.expert_of_token[t];
    ASSERT_TRUE(expert >= 0 && expert < static_cast<int32_t>(experts)) << what << ", token " << t;
    ++loads[static_cast<size_t>(expert)];
    if (!is_counted(problem, static_cast<int64_t>(t))) continue;
    const float score = score_of(problem, static_cast<int64_t>(t), expert);
    if (std::isinf(score))
      allowed = false;
    else
      primal += static_cast<long double>(score);
  }
  EXPECT_EQ(result.loads, loads) << what;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](int32_t t) { return result.expert_of_token[static_cast<size_t>(t)]; });
  EXPECT_EQ(result.tokens_by_expert, order) << what;
  for (size_t t = 0; t < tokens; ++t)
    ASSERT_EQ(order[static_cast<size_t>(result.place_of_token[t])], static_cast<int32_t>(t))
        << what;
  for (const double price : result.prices) ASSERT_TRUE(std::isfinite(price)) << what;
  EXPECT_EQ(*std::ranges::min_element(result.prices), 0) << what;

  bool valid = allowed;
  for (size_t e = 0; e < experts; ++e)
    valid = valid && problem.bounds.lower[e] <= loads[e] && loads[e] <= problem.bounds.upper[e];
  const assignment::Certificate& certificate = result.certificate;
  EXPECT_EQ(certificate.valid, valid) << what;
  // Sums of up to 600 doubles: each addition rounds by 2^-53 of what is summed.
  const double rounding = 1e-12 * magnitude_of(problem);
  if (allowed) {
    EXPECT_NEAR(certificate.primal, static_cast<double>(primal), rounding) << what;
  }
  EXPECT_NEAR(certificate.dual, certificate.primal + certificate.gap, rounding) << what;
  EXPECT_NEAR(certificate.blind, static_cast<double>(blind_value(problem)), rounding) << what;
}

// An exact result is valid, and its own certificate proves that nothing is better.
inline void expect_exact(const assignment::AssignmentProblem& problem,
                         const assignment::Assignment& result, const std::string& what) {
  expect_sound(problem, result, what);
  const double magnitude = magnitude_of(problem);
  EXPECT_TRUE(result.certificate.valid) << what;
  EXPECT_LE(result.certificate.gap, 1e-9 * magnitude) << what;
  EXPECT_GE(result.certificate.gap, -1e-12 * magnitude) << what;
}

// Of a solver that need not be exact.
inline void expect_valid(const assignment::AssignmentProblem& problem,
                         const assignment::Assignment& result, const std::string& what) {
  expect_sound(problem, result, what);
  EXPECT_TRUE(result.certificate.valid) << what;
  EXPECT_GE(result.certificate.gap, -1e-12 * magnitude_of(problem)) << what;  // rounding
}

}  // namespace ballast::test
