// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_core_cuda.cuh"

// Moves tokens from experts with a surplus to experts with room, at the present prices and then at
// raised ones, until all loads keep to their bounds.
namespace ballast::exact_cuda {

// The order in which paths claim experts: shorter ones first.
__device__ inline int path_key(const Core& core, int sink) {
  return core.level[sink] * 2048 + sink;
}

__device__ inline bool is_sink(const Core& core, int e) {
  return core.surplus[e] < 0 && core.level[e] != kUnseen;
}

// Paths that share an expert, other than where they begin, wait: the first by key goes on. Leaves
// in core.flow what each path can carry but for its first move.
__device__ inline void claim_paths(const Core& core) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (!is_sink(core, e)) continue;
    const int key = path_key(core, e);
    for (int at = e; core.level[at] > 0; at = core.before[at]) atomicMin(&core.owner[at], key);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (!is_sink(core, e)) continue;
    const int key = path_key(core, e);
    int carry = -core.surplus[e];
    for (int at = e; core.level[at] > 0; at = core.before[at]) {
      if (core.owner[at] != key) carry = 0;
      if (core.level[at] > 1) carry = min(carry, core.held[core.take[at]]);
      if (core.empties >= 0 && core.parent[at] == core.empties) {
        carry = min(carry, core.room[at] - core.held[core.give[at]]);
      }
    }
    core.flow[e] = carry;
  }
  __syncthreads();
}

// Shares what paths have in common at their beginning. One warp, path by path in order.
__device__ inline void share_sources(const Core& core) {
  if (threadIdx.x < 32) {
    for (int base = 0; base < core.experts; base += 32) {
      const int e = base + threadIdx.x;
      int first = 0;
      const bool goes = e < core.experts && is_sink(core, e) && core.flow[e] > 0;
      if (goes) {
        first = e;
        while (core.level[first] > 1) first = core.before[first];
      }
      for (unsigned left = __ballot_sync(kAll, goes); left != 0; left &= left - 1) {
        if (static_cast<int>(threadIdx.x) == __ffs(left) - 1) {
          const int take = core.take[first], root = core.before[first];
          const int carry = min(core.flow[e], min(core.surplus[root], core.held[take]));
          core.flow[e] = carry;
          core.surplus[root] -= carry;
          core.held[take] -= carry;
        }
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

__device__ inline void apply_paths(const Core& core) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const int carry = core.flow[e];
    if (carry <= 0) continue;
    for (int at = e; core.level[at] > 0; at = core.before[at]) {
      if (core.level[at] > 1) atomicAdd(&core.held[core.take[at]], -carry);
      atomicAdd(&core.held[core.give[at]], carry);
    }
    core.surplus[e] += carry;
  }
  __syncthreads();
}

__device__ inline bool any_sink(const Core& core) {
  bool some = false;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) some |= is_sink(core, e);
  return __syncthreads_or(some) != 0;
}

__device__ inline bool any_surplus(const Core& core) {
  bool some = false;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) some |= core.surplus[e] > 0;
  return __syncthreads_or(some) != 0;
}

// Moves as many tokens as possible at no cost. Returns the searches; adds up their levels.
__device__ inline int move_freely(Core& core, Block& b, int& levels) {
  find_tight(core, &b.flag);
  int searches = 0;
  while (true) {
    levels += find_levels(core);
    ++searches;
    if (!any_sink(core)) return searches;
    find_steps(core);
    claim_paths(core);
    share_sources(core);
    apply_paths(core);
  }
}

// Solves the core. True: balanced. False: some surplus cannot leave within window and budget.
__device__ inline bool solve_core(Core& core, Block& b, int rank) {
  int levels = 0, phases = 0, searches = 0, sweeps = 0;
  bool balanced = true;
  while (any_surplus(core)) {
    ++phases;
    sweeps += find_distances(core);
    const bool reached = raise_prices(core, b.long_scratch);
    if (reached) searches += move_freely(core, b, levels);
    if (!reached || (core.budget == 0 && any_surplus(core))) {
      balanced = false;
      break;
    }
  }
  trace_add(b, rank, kTracePhases, phases);
  trace_add(b, rank, kTraceBellman, sweeps);
  trace_add(b, rank, kTraceSearches, searches);
  trace_add(b, rank, kTraceLevels, levels);
  return balanced;
}

}  // namespace ballast::exact_cuda
