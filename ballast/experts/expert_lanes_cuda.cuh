// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/experts/best_expert.h"

namespace ballast::experts {

// Kernels in which lanes of a warp share the experts of a token: all of them, or, where experts are
// few, kFewLanes, so that a warp has several tokens.
constexpr int kLanes = 32, kFewLanes = 8;
constexpr int kFewExperts = 64;

// The lanes that share a token with this one.
template <int kShare>
__device__ inline unsigned sharing_lanes() {
  if constexpr (kShare == kLanes)
    return 0xffffffffu;
  else
    return ((1u << kShare) - 1u) << (threadIdx.x % kLanes / kShare * kShare);
}

inline int lanes_for(int64_t experts) { return experts <= kFewExperts ? kFewLanes : kLanes; }

// Blocks of `threads` for all tokens.
inline unsigned blocks_for(int64_t tokens, int64_t experts, int threads) {
  return static_cast<unsigned>((tokens * lanes_for(experts) + threads - 1) / threads);
}

__device__ inline float exponential(float x) { return __expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

template <int kShare = kLanes, typename T>
__device__ T sum_of_lanes(T value) {
  const unsigned lanes = sharing_lanes<kShare>();
  for (int step = kShare / 2; step > 0; step /= 2) value += __shfl_xor_sync(lanes, value, step);
  return value;
}

template <int kShare = kLanes, typename T>
__device__ T max_of_lanes(T value) {
  const unsigned lanes = sharing_lanes<kShare>();
  for (int step = kShare / 2; step > 0; step /= 2)
    value = max(value, __shfl_xor_sync(lanes, value, step));
  return value;
}

template <int kShare = kLanes, typename T>
__device__ BestExpert<T> best_of_lanes(BestExpert<T> best) {
  const unsigned lanes = sharing_lanes<kShare>();
  for (int step = kShare / 2; step > 0; step /= 2) {
    const T score = __shfl_xor_sync(lanes, best.score, step);
    best.offer(score, __shfl_xor_sync(lanes, best.expert, step));
  }
  return best;
}

// The largest affinity of a row [E], and the sum of exp(affinity - largest), for all lanes that
// share the token.
template <int kShare = kLanes, typename Scalar>
__device__ void partition(const Scalar* row, int experts, Scalar& largest, Scalar& sum) {
  const int lane = threadIdx.x % kShare;
  largest = row[lane < experts ? lane : 0];
  for (int e = lane; e < experts; e += kShare) largest = max(largest, row[e]);
  largest = max_of_lanes<kShare>(largest);
  sum = 0;
  for (int e = lane; e < experts; e += kShare) sum += exponential(row[e] - largest);
  sum = sum_of_lanes<kShare>(sum);
}

}  // namespace ballast::experts
