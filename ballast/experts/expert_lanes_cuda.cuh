// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/experts/best_expert.h"

namespace ballast::experts {

// Kernels in which a warp has a token, and its lanes share the experts.
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float exponential(float x) { return __expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

template <typename T>
__device__ T sum_of_lanes(T value) {
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

template <typename T>
__device__ T max_of_lanes(T value) {
  for (int step = kLanes / 2; step > 0; step /= 2)
    value = max(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

template <typename T>
__device__ BestExpert<T> best_of_lanes(BestExpert<T> best) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const T score = __shfl_xor_sync(kAllLanes, best.score, step);
    best.offer(score, __shfl_xor_sync(kAllLanes, best.expert, step));
  }
  return best;
}

// The largest affinity of a row [E], and the sum of exp(affinity - largest), for all lanes.
template <typename Scalar>
__device__ void partition(const Scalar* row, int experts, Scalar& largest, Scalar& sum) {
  const int lane = threadIdx.x % kLanes;
  largest = row[lane < experts ? lane : 0];
  for (int e = lane; e < experts; e += kLanes) largest = max(largest, row[e]);
  largest = max_of_lanes(largest);
  sum = 0;
  for (int e = lane; e < experts; e += kLanes) sum += exponential(row[e] - largest);
  sum = sum_of_lanes(sum);
}

}  // namespace ballast::experts
