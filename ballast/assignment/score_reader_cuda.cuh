// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ballast/assignment/cuda_problem.h"

// Scores of any type and stride as floats, on the device, with what is not finite settled.
namespace ballast::assignment {

// What one look at a problem's counted scores tells. Made by atomic maxima and sums from zeros.
struct ScoreFacts {
  unsigned long long first_refused;  // ~(token * E + expert), 0: none
  unsigned long long not_finite;     // how many
  uint32_t lowest;     // ~order_code of the lowest finite score, 0: no score is finite
  uint32_t largest;    // order_code
  int32_t counted;     // tokens
  int32_t infeasible;  // 1: no assignment without a forbidden pair was found
};

// Codes that order as the numbers do; 0 is below all of them.
__device__ inline uint32_t order_code(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float from_order_code(uint32_t code) {
  return __uint_as_float((code & 0x80000000U) != 0 ? code & 0x7fffffffU : ~code);
}

__device__ inline float minus_infinity() { return __uint_as_float(0xff800000U); }

// Lowest and largest finite score; 0 where there is none.
__device__ inline float lowest_score(const ScoreFacts& facts) {
  return facts.lowest == 0 ? 0.0F : from_order_code(~facts.lowest);
}
__device__ inline float largest_score(const ScoreFacts& facts) {
  return facts.lowest == 0 ? 0.0F : from_order_code(facts.largest);
}

__device__ inline bool is_counted(const CudaProblems& problems, int32_t problem, int32_t token) {
  return problems.counted == nullptr ||
         problems.counted[static_cast<int64_t>(problem) * problems.tokens + token] != 0;
}

__device__ inline int32_t lower_bound_of(const CudaProblems& problems, int32_t expert) {
  return problems.lower != nullptr ? problems.lower[expert] : problems.tokens / problems.experts;
}
__device__ inline int32_t upper_bound_of(const CudaProblems& problems, int32_t expert) {
  if (problems.upper != nullptr) return problems.upper[expert];
  return problems.tokens / problems.experts + (problems.tokens % problems.experts != 0 ? 1 : 0);
}

__device__ inline float raw_score(const CudaProblems& problems, int32_t problem, int32_t token,
                                  int32_t expert) {
  const int64_t at = problem * problems.problem_stride + token * problems.token_stride +
                     expert * problems.expert_stride;
  switch (problems.type) {
    case ScoreType::kFloat32:
      return static_cast<const float*>(problems.scores)[at];
    case ScoreType::kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(problems.scores)[at]);
    case ScoreType::kFloat16:
      return __half2float(static_cast<const __half*>(problems.scores)[at]);
  }
  return 0;
}

// Whether -inf stands for a forbidden pair.
__device__ inline bool forbids(const CudaProblems& problems, float score) {
  return problems.non_finite == NonFinite::kForbid && score == minus_infinity();
}

// A score, -inf where the pair is forbidden, and the lowest one in place of others not finite.
class ScoreReader {
 public:
  __device__ ScoreReader(const CudaProblems& problems, int32_t problem, const ScoreFacts& facts)
      : problems_(problems), problem_(problem), lowest_(lowest_score(facts)) {}
  __device__ float operator()(int32_t token, int32_t expert) const {
    const float score = raw_score(problems_, problem_, token, expert);
    return isfinite(score) || forbids(problems_, score) ? score : lowest_;
  }

 private:
  const CudaProblems& problems_;
  int32_t problem_;
  float lowest_;
};

}  // namespace ballast::assignment
