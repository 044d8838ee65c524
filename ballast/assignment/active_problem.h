// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/problem.h"

namespace ballast::assignment {

// What a method works on: the tokens that count, as fp32 rows.
struct ActiveProblem {
  const float* scores = nullptr;  // [tokens, experts]; finite, or -inf where a pair is forbidden
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t row_stride = 0;
  const LoadBounds* bounds = nullptr;  // of all tokens, padding included
  int64_t padding = 0;                 // tokens without a row that fill what is left
  float largest_magnitude = 0;         // of the finite scores
  bool has_forbidden = false;

  const float* row(int64_t token) const { return scores + token * row_stride; }
};

// What a method answers.
struct Choice {
  std::vector<int32_t> expert_of_row;  // [tokens]
  std::vector<double> prices;          // [E]
};

// Reads a problem's scores once: checks them, drops padding, and gives fp32 rows, in place where
// the caller's memory already is that.
class ActiveRows {
 public:
  // The result refers to the scores, `bounds` (those that apply) and this object. REQUIRES:
  // check_shape passed. UserError: a score that problem.non_finite refuses, by token and expert.
  ActiveProblem read(const AssignmentProblem& problem, const LoadBounds& bounds, size_t threads);

  // Token of each row; empty when all tokens have one.
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t replaced() const { return replaced_; }

 private:
  std::vector<float> copy_;
  std::vector<int32_t> tokens_;
  int64_t replaced_ = 0;
};

}  // namespace ballast::assignment
