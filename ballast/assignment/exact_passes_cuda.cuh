// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_state_cuda.cuh"

// What passes of all phases have in common: the sums of a team, and how far loads are off.
namespace ballast::assignment::exact_cuda {

// Clears the sums that the next pass will use. REQUIRES: all blocks are past the reading of that
// buffer, which was two turns ago.
__device__ inline void clear_next(Problem& p, const Team& team) {
  const int next = (p.passes.turn + 1) % 3;
  auto* words = reinterpret_cast<int*>(p.passes.memory + next * p.passes.bytes);
  const int count = static_cast<int>(p.passes.bytes / sizeof(int));
  const int threads = team.size * blockDim.x;
  for (int i = team.rank * blockDim.x + threadIdx.x; i < count; i += threads) words[i] = 0;
}

// Ends a pass: all blocks' sums are complete, and p.passes.turn names the next ones.
__device__ inline Sums finish_pass(Problem& p, Team& team) {
  team.meet();
  const Sums sums = p.passes.now(p.experts);
  __syncthreads();
  if (threadIdx.x == 0) p.passes.turn = (p.passes.turn + 1) % 3;
  __syncthreads();
  return sums;
}

// Tokens above the bounds, or missing below them, for loads of counted tokens.
__device__ inline int imbalance_of(Problem& p, const int* loads) {
  float over = 0, under = 0, none = 0;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    const int load = loads[e];
    over += static_cast<float>(max(0, load - p.upper[e]));
    under += static_cast<float>(max(0, p.lower[e] - load));
  }
  block_sums(over, under, none, p.scratch.floats);
  return max(static_cast<int>(over), static_cast<int>(under) - p.padding);
}

// An imbalance that is left to the repair.
__device__ inline int goal_of(const Problem& p) {
  return max(1, static_cast<int>(fmaxf(0.2f * p.experts, 0.001f * p.counted)));
}

__device__ inline void collect_loads(Problem& p, const Sums& sums) {
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.hard[e] = __ldcg(&sums.hard[e]);
}

}  // namespace ballast::assignment::exact_cuda
