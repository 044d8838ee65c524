// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_state_cuda.cuh"

// Exchanges tokens along shortest paths from experts with a surplus to experts with room, in one
// block and in integers: the prices rise until paths cost nothing, tokens move along paths that
// share no expert, and so on until all is even.
namespace ballast::assignment::on_chip {

// Tokens that may move (groups), each with the experts it may be at (pairs).
template <int kExperts>
struct Paths {
  int near[kExperts];     // distance from the nearest expert with a surplus
  int surplus[kExperts];  // tokens above the share; below 0: room
  int price[kExperts];
  int parent[kExperts];  // pair by which the nearest path comes; kNone: begins here, or none is
  int found[kExperts];   // the same, for those being found
  int before[kExperts];  // expert before it
  int moves[kExperts];   // of the path, but only those that cost nothing
  int owner[kExperts];   // path that takes this expert
  int cost[kPairs];      // what the pair lacks to its token's best
  uint16_t group[kPairs];
  uint16_t token[kGroups];
  uint8_t expert[kPairs];
  uint8_t own[kGroups];  // where the token is: at no cost
};

constexpr int kFar = 1 << 30;
constexpr int kNone = 0x7fffffff;
constexpr int kKept = kPairs / kThreads;  // pairs that each thread keeps

struct Pairs {
  int count;  // of this thread
  int cost[kKept];
  int from[kKept], to[kKept];
};

// Distances up to `budget` (Bellman and Ford). Returns the sweeps.
template <int kExperts>
__device__ int find_distances(Paths<kExperts>& paths, const Pairs& pairs, int budget) {
  if (threadIdx.x < kExperts) {
    paths.near[threadIdx.x] = paths.surplus[threadIdx.x] > 0 ? 0 : kFar;
    paths.parent[threadIdx.x] = paths.found[threadIdx.x] = paths.owner[threadIdx.x] = kNone;
    paths.moves[threadIdx.x] = 0;
  }
  __syncthreads();
  int sweeps = 0, last[kKept];  // distances of experts at which pairs begin, when last looked at
#pragma unroll
  for (int i = 0; i < kKept; ++i) last[i] = kFar;
  for (bool changed = true; changed && sweeps <= 2 * kExperts; ++sweeps) {
    changed = false;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= pairs.count) break;
      const int from = paths.near[pairs.from[i]];
      if (from == last[i]) continue;
      last[i] = from;
      const int sum = from + pairs.cost[i];
      if (sum <= budget && sum < paths.near[pairs.to[i]]) {
        atomicMin(&paths.near[pairs.to[i]], sum);
        changed = true;
      }
    }
    changed = __syncthreads_or(changed) != 0;
  }
  return sweeps;
}

// How far prices rise at most, so that all reached experts with room are reached at no cost. -1:
// there is none. Every warp finds the same.
template <int kExperts>
__device__ int find_rise(const Paths<kExperts>& paths) {
  int farthest = -1;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) {
    if (paths.surplus[e] < 0 && paths.near[e] < kFar) farthest = max(farthest, paths.near[e]);
  }
  return lanes_max(farthest, 32);
}

// Takes over what was found. True: an expert within `rise` still has no path.
template <int kExperts>
__device__ bool take_parents(Paths<kExperts>& paths, int rise, int moves) {
  bool open = false;
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x, found = paths.found[e];
    const bool wants = paths.near[e] <= rise && paths.surplus[e] <= 0 && paths.parent[e] == kNone;
    if (wants && found != kNone) {
      paths.parent[e] = found;
      paths.before[e] = paths.own[paths.group[found]];
      paths.moves[e] = moves;
    }
    open = wants && found == kNone;
  }
  return __syncthreads_or(open) != 0;
}

// For each expert within `rise`, the pair by which a shortest path comes: from a nearer expert, or
// at no cost from one as near that has its path already.
template <int kExperts>
__device__ void find_parents(Paths<kExperts>& paths, const Pairs& pairs, int rise) {
  const auto propose = [&](int i) {
    atomicMin(&paths.found[pairs.to[i]], static_cast<int>(threadIdx.x) + i * kThreads);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (i >= pairs.count) break;
    if (pairs.cost[i] > 0 && paths.near[pairs.from[i]] + pairs.cost[i] == paths.near[pairs.to[i]])
      propose(i);
  }
  __syncthreads();
  bool open = take_parents(paths, rise, 0);
  for (int moves = 1; open && moves <= kExperts; ++moves) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= pairs.count) break;
      const int from = pairs.from[i], to = pairs.to[i];
      if (pairs.cost[i] == 0 && from != to && paths.near[from] == paths.near[to] &&
          paths.near[from] <= rise && (paths.surplus[from] > 0 || paths.parent[from] != kNone) &&
          paths.moves[from] == moves - 1) {
        propose(i);
      }
    }
    __syncthreads();
    open = take_parents(paths, rise, moves);
  }
}

// Prices of experts nearer than `rise` go up by the difference.
template <int kExperts>
__device__ void raise_prices(Paths<kExperts>& paths, Pairs& pairs, int rise) {
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (i >= pairs.count) break;
    pairs.cost[i] +=
        max(0, rise - paths.near[pairs.to[i]]) - max(0, rise - paths.near[pairs.from[i]]);
  }
  if (threadIdx.x < kExperts) paths.price[threadIdx.x] += max(0, rise - paths.near[threadIdx.x]);
}

// Moves one token into each expert with room whose path no other with a lower number crosses.
template <int kExperts>
__device__ void move_tokens(Paths<kExperts>& paths, int rise) {
  const int sink = threadIdx.x;
  const bool goes = sink < kExperts && paths.surplus[sink] < 0 && paths.near[sink] <= rise;
  int root = sink;
  if (goes) {
    for (; paths.parent[root] != kNone; root = paths.before[root])
      atomicMin(&paths.owner[root], sink);
    atomicMin(&paths.owner[root], sink);
  }
  __syncthreads();
  bool free = goes && paths.owner[root] == sink;
  if (free) {
    for (int at = sink; at != root; at = paths.before[at]) free = free && paths.owner[at] == sink;
  }
  if (free) {
    for (int at = sink; at != root; at = paths.before[at])
      paths.own[paths.group[paths.parent[at]]] = static_cast<uint8_t>(at);
    paths.surplus[sink] += 1;
    paths.surplus[root] -= 1;
  }
  __syncthreads();
}

// Whether all experts are even; each warp looks by itself.
template <int kExperts>
__device__ inline bool is_even(const Paths<kExperts>& paths) {
  bool some = false;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) some = some || paths.surplus[e] > 0;
  return __any_sync(kAll, some) == 0;
}

// Solves what the lists of `count` pairs allow: prices may rise by `budget` in all, and pairs may
// be swept over sweeps_left times. True: all is even.
template <int kExperts>
__device__ bool exchange_tokens(Paths<kExperts>& paths, int count, int budget, int& sweeps_left) {
  Pairs pairs;
  pairs.count = (count - static_cast<int>(threadIdx.x) + kThreads - 1) / kThreads;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int k = threadIdx.x + i * kThreads;
    pairs.cost[i] = k < count ? paths.cost[k] : 0;
    pairs.to[i] = k < count ? paths.expert[k] : 0;
  }
  __syncthreads();
  while (!is_even(paths)) {
    if (sweeps_left < 0) return false;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int k = threadIdx.x + i * kThreads;
      pairs.from[i] = k < count ? paths.own[paths.group[k]] : 0;
    }
    sweeps_left -= find_distances(paths, pairs, budget) + 4;
    const int rise = find_rise(paths);
    if (rise >= 0) find_parents(paths, pairs, rise);
    raise_prices(paths, pairs, rise >= 0 ? rise : budget);
    __syncthreads();
    if (rise < 0) return false;
    budget -= rise;
    move_tokens(paths, rise);
  }
  return true;
}

}  // namespace ballast::assignment::on_chip
