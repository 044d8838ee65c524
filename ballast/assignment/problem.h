// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ballast::assignment {

enum class ScoreType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Scores [T, E] in memory that someone else owns: token t's score for expert e is element
// t * token_stride + e * expert_stride of `data`.
struct ScoreMatrix {
  const void* data = nullptr;
  ScoreType type = ScoreType::kFloat32;
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t token_stride = 0;
  int64_t expert_stride = 1;
};

// Row-major fp32 scores [tokens, experts].
ScoreMatrix score_matrix(const float* data, int64_t tokens, int64_t experts);

// How many tokens, padding included, each expert must and may get.
struct LoadBounds {
  std::vector<int32_t> lower;  // [E]
  std::vector<int32_t> upper;  // [E]
};

// The paper's constraint: every expert gets T / E tokens; when E does not divide T, floor or ceil.
// UserError: no expert, or negative tokens.
LoadBounds equal_loads(int64_t tokens, int64_t experts);

// Expert e gets at most capacities[e] tokens. UserError: a negative capacity, or too few for
// `tokens`.
LoadBounds at_most(std::span<const int64_t> capacities, int64_t tokens);

// What a NaN or an infinity among the scores means. kLowest: the lowest finite score of the matrix,
// 0 if there is none (each is counted). kForbid: -inf forbids the pair; NaN and +inf are refused.
enum class NonFinite : uint8_t { kReject, kLowest, kForbid };

// Give each token one expert so that loads keep to their bounds and the sum of scores is largest.
struct AssignmentProblem {
  ScoreMatrix scores;
  LoadBounds bounds;                 // empty: equal_loads
  std::span<const uint8_t> counted;  // [T], or empty: all. 0: padding, which fills what is left
  NonFinite non_finite = NonFinite::kReject;
};

// UserError naming what is wrong with the shape or the mask, or with the bounds that apply. Neither
// looks at the scores.
void check_shape(const AssignmentProblem& problem);
void check_bounds(const LoadBounds& bounds, int64_t tokens, int64_t experts);

// UserError for bounds that only a forbidden pair could meet.
[[noreturn]] void fail_infeasible();

}  // namespace ballast::assignment
