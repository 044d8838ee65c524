// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_core_cuda.cuh"

// Moves tokens from experts with a surplus to experts with room, at the present prices and then at
// raised ones, until all loads keep to their bounds.
namespace ballast::assignment::exact_cuda {

// The order in which paths claim experts: shorter ones first.
template <typename Cost>
__device__ inline int path_key(const Core<Cost>& core, int sink) {
  return core.level[sink] * 2048 + sink;
}

template <typename Cost>
__device__ inline bool is_sink(const Core<Cost>& core, int e) {
  return core.surplus[e] < 0 && core.level[e] != kUnseen;
}

// Tokens that the last move on the way to an expert can carry.
template <typename Cost>
__device__ inline int width_at(const Core<Cost>& core, int e) {
  return core.take[e] < 0 ? 1 : core.held[core.take[e]];
}

// Paths that share an expert, other than where they begin, wait: the first by key goes on. Leaves
// in core.flow what each path can carry but for its first move. True: some path has to wait.
template <typename Cost>
__device__ inline bool claim_paths(const Core<Cost>& core) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (!is_sink(core, e)) continue;
    const int key = path_key(core, e);
    for (int at = e; core.level[at] > 0; at = core.before[at]) atomicMin(&core.owner[at], key);
  }
  __syncthreads();
  bool waits = false;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (!is_sink(core, e)) continue;
    const int key = path_key(core, e);
    int carry = -core.surplus[e];
    for (int at = e; core.level[at] > 0; at = core.before[at]) {
      if (core.owner[at] != key) carry = 0;
      if (core.level[at] > 1) carry = min(carry, width_at(core, at));
      if (core.empties >= 0 && core.parent[at] == core.pairs + core.empties) {
        carry = min(carry, core.room[at] - core.held[core.give[at]]);
      }
    }
    core.flow[e] = carry;
    waits = waits || carry < -core.surplus[e];
  }
  return __syncthreads_or(waits) != 0;
}

// Shares what paths have in common at their beginning. One warp, path by path in order. Uses
// core.owner of a single token's pair's expert as the mark that the token has left.
template <typename Cost>
__device__ inline void share_sources(const Core<Cost>& core) {
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
          int carry = min(core.flow[e], core.surplus[root]);
          if (take >= 0) {
            carry = min(carry, core.held[take]);
            core.held[take] -= carry;
          } else {
            const int pair = core.give[first];
            const unsigned here = core.ends[core.start[core.group[pair]]] & 0xffffu;
            carry = here == static_cast<unsigned>(root) ? min(carry, 1) : 0;
            if (carry > 0) {
              unsigned& mark = core.ends[core.start[core.group[pair]]];
              mark = (mark & 0xffff0000u) | (kCrowd - 1);  // gone, until apply_paths says where
            }
          }
          core.flow[e] = carry;
          core.surplus[root] -= carry;
        }
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

template <typename Cost>
__device__ inline void apply_paths(const Core<Cost>& core) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const int carry = core.flow[e];
    if (carry <= 0) continue;
    for (int at = e; core.level[at] > 0; at = core.before[at]) {
      if (core.take[at] >= 0) {
        if (core.level[at] > 1) atomicAdd(&core.held[core.take[at]], -carry);
        atomicAdd(&core.held[core.give[at]], carry);
      } else {
        const int group = core.group[core.give[at]];
        for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
          core.ends[k] = (core.ends[k] & 0xffff0000u) | static_cast<unsigned>(at);
        }
      }
    }
    core.surplus[e] += carry;
  }
  __syncthreads();
}

template <typename Cost>
__device__ inline bool any_sink(const Core<Cost>& core) {
  bool some = false;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) some |= is_sink(core, e);
  return __syncthreads_or(some) != 0;
}

template <typename Cost>
__device__ inline bool any_surplus(const Core<Cost>& core) {
  bool some = false;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) some |= core.surplus[e] > 0;
  return __syncthreads_or(some) != 0;
}

// Moves tokens at no cost; what it leaves, the next distances find. Ends early where
// core.sweeps_left falls below 0.
template <typename Cost>
__device__ inline void move_freely(Core<Cost>& core) {
  while (true) {
    core.sweeps_left -= find_levels(core) + 1;
    if (!any_sink(core)) return;
    find_steps(core);
    const bool waits = claim_paths(core);
    share_sources(core);
    apply_paths(core);
    if (!waits || core.sweeps_left < 0) return;
  }
}

// Solves the core. True: balanced. False: some surplus cannot leave within window and budget, or
// core.sweeps_left is below 0.
template <typename Cost>
__device__ inline bool solve_core(Core<Cost>& core, Problem& p) {
  while (any_surplus(core)) {
    find_distances(core);
    if (core.sweeps_left < 0) return false;
    if (!raise_prices(core, reinterpret_cast<Cost*>(p.scratch.longs))) return false;
    move_freely(core);
  }
  return true;
}

}  // namespace ballast::assignment::exact_cuda
