// SPDX-License-Identifier: Apache-2.0
#ifndef BALLAST_ASSIGN_H
#define BALLAST_ASSIGN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Balanced assignment for whatever can call C: libballast_assign.so, which needs neither libtorch
// nor Python. ballast.assign calls it for arrays of numpy.

enum { BALLAST_FLOAT32 = 0, BALLAST_BFLOAT16 = 1, BALLAST_FLOAT16 = 2 };

// Give each token one expert so that loads keep to their bounds and the sum of scores is largest.
typedef struct {
  // The score of token t and expert e is element t * token_stride + e * expert_stride.
  const void* scores;
  int32_t type;     // BALLAST_FLOAT32 ...
  int32_t forbids;  // not 0: a score of -inf forbids the pair; 0: it is refused
  int64_t tokens, experts;
  int64_t token_stride, expert_stride;  // in elements
  const int64_t* capacities;            // [experts], at most; null: equal loads
  const uint8_t* counted;               // [tokens], 0: padding; null: all count
} ballast_problem;

typedef struct {
  int32_t* expert_of_token;  // [tokens]
  int32_t* loads;            // [experts]
  double* prices;            // [experts]
  // Written, too; as Certificate has them.
  int32_t valid;
  double primal, dual, gap, relative_gap;
} ballast_result;

// 0, or 1 with the reason in `message`. The result is then unspecified. Thread-safe.
int ballast_assign(const ballast_problem* problem, ballast_result* result, char* message,
                   size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
