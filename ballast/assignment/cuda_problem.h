// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/assignment/problem.h"

namespace ballast::assignment {

// Problems of one shape on a GPU (routing groups), solved together. All pointers are device memory.
struct CudaProblems {
  const void* scores = nullptr;  // [problems, T, E] with the strides below, in elements
  ScoreType type = ScoreType::kFloat32;
  int32_t problems = 0, tokens = 0, experts = 0;
  int64_t problem_stride = 0, token_stride = 0, expert_stride = 1;
  const int32_t* lower = nullptr;        // [E] bounds of all problems; both null: equal loads
  const int32_t* upper = nullptr;        // [E]
  const uint8_t* counted = nullptr;      // [problems, T], or null: all. 0: padding
  const double* start_prices = nullptr;  // [problems, E], or null. All equal: no start
  int64_t start_stride = 0;              // from a problem's to the next one's; 0: all have the same
  NonFinite non_finite = NonFinite::kReject;
};

// A limit on the exact solver's work (ExactCudaOptions::max_work) that only odd scores reach.
inline constexpr int64_t kBoundedCudaWork = int64_t{1} << 25;

// What became of one problem, written on the device and read by the host when it likes.
struct AssignmentStatus {
  enum Code : int32_t { kOk = 0, kNonFinite = 1, kInfeasible = 2, kNotConverged = 3 };
  int32_t code = kOk;    // kNotConverged: valid, but not optimal; the gap says by how much
  int32_t valid = 0;     // 1: loads keep to their bounds and no forbidden pair is used
  int32_t token = -1;    // kNonFinite: the first token, in row order,
  int32_t expert = -1;   // and its first expert with a score that is refused
  int64_t replaced = 0;  // scores taken as the lowest (NonFinite::kLowest)
  double primal = 0;     // as in Certificate
  double dual = 0;
  double gap = 0;
  double blind = 0;
};

// Whatever the status says, the assignment is in range and its order is a permutation, so that the
// kernels after it stay within their memory.
struct CudaAssignments {
  int32_t* expert_of_token = nullptr;   // [problems, T]
  int32_t* tokens_by_expert = nullptr;  // [problems, T]
  int32_t* place_of_token = nullptr;    // [problems, T]
  int32_t* loads = nullptr;             // [problems, E]
  double* prices = nullptr;             // [problems, E]; the start prices' memory, if each has own
  AssignmentStatus* status = nullptr;   // [problems]
};

}  // namespace ballast::assignment
