// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_paths_cuda.cuh"

// exchange_tokens for up to 32 experts: all threads find the cheapest token between any two
// experts, then one warp, an expert a lane, searches and moves without waiting for others.
namespace ballast::assignment::on_chip {

// The cheapest way from each expert to each other, and what the warp tells the other threads.
struct Crossings {
  static constexpr int kExperts = 32;
  static constexpr int kFar = 1 << 29;  // more than any path costs
  enum Verdict { kSearching, kEven, kStuck };
  int cost[kExperts][kExperts];        // [from, to]
  unsigned group[kExperts][kExperts];  // token that goes there
  int raised[kExperts];                // how much prices rose
  int verdict, sweeps_left;
};

// A thread's pairs.
struct OwnPairs {
  static constexpr int kKept = kPairs / kThreads;
  int cost[kKept], group[kKept], to[kKept], from[kKept], count;

  __device__ OwnPairs(const Paths<32>& paths, int pairs) {
    count = max(0, (pairs - static_cast<int>(threadIdx.x) + kThreads - 1) / kThreads);
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int k = static_cast<int>(threadIdx.x) + i * kThreads;
      cost[i] = i < count ? paths.cost[k] : 0;
      group[i] = i < count ? paths.group[k] : 0;
      to[i] = i < count ? paths.expert[k] : 0;
    }
  }

  // The cheapest of all threads' pairs, and of those as cheap the first token's.
  __device__ void find_crossings(const Paths<32>& paths, Crossings& x) {
    for (int i = threadIdx.x; i < 32 * 32; i += kThreads) {
      x.cost[i / 32][i % 32] = Crossings::kFar;
      x.group[i / 32][i % 32] = 0xffffffffu;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= count) break;
      from[i] = paths.own[group[i]];
      if (from[i] != to[i]) atomicMin(&x.cost[from[i]][to[i]], cost[i]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= count) break;
      if (from[i] != to[i] && x.cost[from[i]][to[i]] == cost[i])
        atomicMin(&x.group[from[i]][to[i]], static_cast<unsigned>(group[i]));
    }
    __syncthreads();
  }

  // Costs after prices rose, for tokens where they were before they moved.
  __device__ void raise(const Crossings& x) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= count) break;
      if (from[i] != to[i]) cost[i] += x.raised[to[i]] - x.raised[from[i]];
    }
  }
};

// An expert's place on a shortest path.
struct Reached {
  int distance, before;  // `before`: the expert before it; itself: none is
};

// From experts with a surplus to all within `budget` (Bellman and Ford).
__device__ inline Reached find_paths(const Crossings& x, int surplus, int budget, int& sweeps) {
  const int lane = threadIdx.x % 32;
  int cost[32];
#pragma unroll
  for (int a = 0; a < 32; ++a) cost[a] = x.cost[a][lane];
  Reached at{surplus > 0 ? 0 : Crossings::kFar, lane};
  for (bool changed = true; changed && sweeps <= 32; ++sweeps) {
    int distance[32],
        least[4] = {Crossings::kFar, Crossings::kFar, Crossings::kFar, Crossings::kFar};
#pragma unroll
    for (int a = 0; a < 32; ++a) {
      distance[a] = __shfl_sync(kAll, at.distance, a) + cost[a];
      least[a % 4] = min(least[a % 4], distance[a]);
    }
    const int best = min(min(least[0], least[1]), min(least[2], least[3]));
    const bool better = best < at.distance && best <= budget;
    if (better) {
      unsigned equal = 0;
#pragma unroll
      for (int a = 0; a < 32; ++a) equal |= distance[a] == best ? 1u << a : 0u;
      at = {best, __ffs(equal) - 1};
    }
    changed = __any_sync(kAll, better) != 0;
  }
  return at;
}

// The first of the lanes with the same key; lanes without one have a key of their own.
__device__ inline bool is_first(bool has, int key) {
  const int lane = threadIdx.x % 32;
  const unsigned same = __match_any_sync(kAll, has ? key : -1 - lane);  // all lanes take part
  return has && __ffs(same) - 1 == lane;
}

// Moves a token into each expert with room by its path: `goes`. Of paths that share more than their
// root the one to the lowest number goes; of those that remain at a root, as many as its surplus.
__device__ inline void move_along(Paths<32>& paths, const Crossings& x, bool goes,
                                  const Reached& at) {
  const int lane = threadIdx.x % 32;
  int root = lane, first = lane;  // `first`: the expert behind the root
  bool moved = true;
  for (int moves = 0; moves < 32 && __any_sync(kAll, moved) != 0; ++moves) {
    const int before = __shfl_sync(kAll, at.before, root);
    moved = before != root;
    if (moved) {
      first = root;
      root = before;
    }
  }
  paths.before[lane] = at.before;
  bool wins = is_first(goes, first);
  wins = is_first(wins, static_cast<int>(x.group[root][first] & 0xffffu));
  const unsigned same = __match_any_sync(kAll, wins ? root : -1 - lane);
  wins = wins && __popc(same & ((1u << lane) - 1u)) < paths.surplus[root];
  __syncwarp();
  if (wins) {
    for (int to = lane; to != root; to = paths.before[to])
      paths.own[x.group[paths.before[to]][to]] = static_cast<uint8_t>(to);
    atomicAdd(&paths.surplus[lane], 1);
    atomicAdd(&paths.surplus[root], -1);
  }
  __syncwarp();
}

// One search, for one warp: prices rise and tokens move.
__device__ inline void search_in_warp(Paths<32>& paths, Crossings& x, int& budget,
                                      int& sweeps_left) {
  const int lane = threadIdx.x % 32, surplus = paths.surplus[lane];
  int sweeps = 0;
  const Reached at = find_paths(x, surplus, budget, sweeps);
  sweeps_left -= sweeps + 4;
  const bool goes = surplus < 0 && at.distance <= budget;
  const int farthest = __reduce_max_sync(kAll, goes ? at.distance : -1);
  const int rise = farthest >= 0 ? farthest : budget, raised = max(0, rise - at.distance);
  x.raised[lane] = raised;
  paths.price[lane] += raised;
  budget -= rise;
  move_along(paths, x, goes, at);
  const bool even = __any_sync(kAll, paths.surplus[lane] > 0) == 0;
  if (lane != 0) return;
  const bool stuck = farthest < 0 || sweeps_left < 0;
  x.verdict = even ? Crossings::kEven : stuck ? Crossings::kStuck : Crossings::kSearching;
  x.sweeps_left = sweeps_left;
}

// As exchange_tokens. `x` is memory for it.
__device__ inline bool exchange_few(Paths<32>& paths, Crossings& x, int count, int budget,
                                    int& sweeps_left) {
  if (is_even(paths)) return true;
  OwnPairs pairs(paths, count);
  do {
    pairs.find_crossings(paths, x);
    if (threadIdx.x < 32) search_in_warp(paths, x, budget, sweeps_left);
    __syncthreads();
    pairs.raise(x);
  } while (x.verdict == Crossings::kSearching);
  sweeps_left = x.sweeps_left;
  return x.verdict == Crossings::kEven;
}

}  // namespace ballast::assignment::on_chip
