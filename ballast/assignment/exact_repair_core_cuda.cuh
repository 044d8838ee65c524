// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_lists_cuda.cuh"

// The window as one sparse transportation problem in one block: groups of equal tokens, each with
// a list of (group, expert) pairs. Most groups are one token; others, padding and empty places
// among them, are called crowds.
namespace ballast::assignment::exact_cuda {

constexpr int kUnseen = 0x3fffffff;
constexpr unsigned kCrowd = 0xffff;

template <typename Cost>
struct Core {
  static constexpr Cost kFar = Cost(1) << (8 * sizeof(Cost) - 2);
  int experts, pairs, groups, crowds;
  int empties;  // the group of empty places, or -1
  int* start;   // [groups + 1]
  int* crowd;   // groups that are crowds
  // [pairs]
  Cost* cost;      // what the pair lacks to the best of its group, at the present prices
  unsigned* ends;  // the expert where the token is (or kCrowd), and the pair's expert << 16
  int* group;
  int* held;  // a crowd's tokens at this expert
  // [E]
  Cost* distance;
  Cost* nearer;  // what a sweep makes of the distances, where work is limited
  Cost* rise;    // of the price since the window
  int* surplus;  // tokens above the bound; below 0: room
  int* level;
  int* parent;  // pair that reaches this expert; or pairs + group, of a crowd
  int* owner;   // sink whose path this expert is on
  int* before;  // the path's expert before this one
  int* take;    // a crowd's pair that gives a token up
  int* give;    // pair that gets it
  int* flow;
  Cost budget;      // of rises that cannot hurt what is outside the window
  bool limited;     // by the caller
  int sweeps_left;  // over the pairs; below 0: the work that is allowed is done
  const int* room;  // bound on empty places at each expert: upper - lower

  __device__ int expert(int pair) const { return static_cast<int>(ends[pair] >> 16); }
  __device__ bool open(int g, int pair) const {
    return g != empties || held[pair] < room[expert(pair)];
  }
};

// Experts reached through a crowd, from those at `known` distances, one sweep. A warp's work.
template <typename Cost>
__device__ inline bool relax_crowd(const Core<Cost>& core, int group, const Cost* known,
                                   Cost* found) {
  const int first = core.start[group] + threadIdx.x % 32, last = core.start[group + 1];
  Cost near = core.kFar;
  for (int k = first; k < last; k += 32) {
    if (core.held[k] <= 0) continue;
    const Cost d = known[core.expert(k)];
    if (d < core.kFar) near = min(near, d - core.cost[k]);
  }
  near = lanes_min(near, 32);
  if (near >= core.kFar) return false;
  bool changed = false;
  for (int k = first; k < last; k += 32) {
    const Cost d = near + core.cost[k];
    const int e = core.expert(k);
    if (d < known[e] && core.open(group, k)) {
      atomicMin(&found[e], d);
      changed = true;
    }
  }
  return changed;
}

// Shortest distances from experts with a surplus, by reduced costs (Bellman and Ford). They mean
// nothing where core.sweeps_left falls below 0. Where work is limited a sweep reads what the one
// before has found: otherwise the order of threads would decide how many there are, and so where
// the work ends. It takes up to a quarter longer.
template <typename Cost>
__device__ inline void find_distances(Core<Cost>& core) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    core.distance[e] = core.surplus[e] > 0 ? 0 : core.kFar;
    core.nearer[e] = core.kFar;
  }
  // Each thread keeps its first pairs in registers: [held] with an end at kCrowd does nothing.
  constexpr int kKept = 8;
  unsigned kept[kKept];
  Cost price[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int k = threadIdx.x + i * blockDim.x;
    kept[i] = k < core.pairs ? core.ends[k] : kCrowd;
    price[i] = k < core.pairs ? core.cost[k] : 0;
  }
  Cost *known = core.distance, *found = core.limited ? core.nearer : core.distance;
  auto relax = [&](unsigned ends, Cost cost) {
    const unsigned from = ends & 0xffffu, to = ends >> 16;
    if (from == kCrowd) return false;
    const Cost sum = known[from] + cost;
    if (sum >= core.kFar || sum >= known[to]) return false;
    atomicMin(&found[to], sum);
    return true;
  };
  __syncthreads();
  for (int sweep = 1; sweep <= core.experts + 2; ++sweep) {
    if (--core.sweeps_left < 0) return;
    bool changed = false;
    if (core.limited) {  // `found` is of two sweeps ago
      for (int e = threadIdx.x; e < core.experts; e += blockDim.x) atomicMin(&found[e], known[e]);
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) changed |= relax(kept[i], price[i]);
#pragma unroll 4
    for (int k = threadIdx.x + kKept * blockDim.x; k < core.pairs; k += blockDim.x) {
      changed |= relax(core.ends[k], core.cost[k]);
    }
    __syncwarp();
    for (int i = warp; i < core.crowds; i += warps) {
      changed |= relax_crowd(core, core.crowd[i], known, found);
      __syncwarp();
    }
    if (__syncthreads_or(changed) == 0) return;  // `found` is as `known`
    Cost* const swapped = known;
    known = found;
    found = swapped;
  }
}

// Raises prices so that every reachable expert with room is reached at no cost, as far as the
// budget goes. False: not one is.
template <typename Cost>
__device__ inline bool raise_prices(Core<Cost>& core, Cost* scratch) {
  Cost farthest = -1, nearest = core.kFar;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (core.surplus[e] < 0 && core.distance[e] < core.kFar) {
      farthest = max(farthest, core.distance[e]);
      nearest = min(nearest, core.distance[e]);
    }
  }
  farthest = block_max(farthest, scratch);
  nearest = -block_max(-nearest, scratch);
  if (farthest < 0 && core.budget >= core.kFar) return false;
  const bool reached = farthest >= 0 && nearest <= core.budget;
  const Cost rise = reached ? min(farthest, core.budget) : core.budget;
  core.budget -= rise;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const Cost mine = max(Cost(0), rise - core.distance[e]);
    core.distance[e] = mine;
    core.rise[e] += mine;
  }
  __syncthreads();
#pragma unroll 4
  for (int k = threadIdx.x; k < core.pairs; k += blockDim.x) {
    const unsigned ends = core.ends[k], from = ends & 0xffffu;
    const Cost mine = core.distance[ends >> 16];
    core.cost[k] += from == kCrowd ? mine : mine - core.distance[from];
  }
  __syncthreads();
  return reached;
}

// The cost at which a crowd's tokens move freely: that of the worst they have.
template <typename Cost>
__device__ inline Cost free_cost(const Core<Cost>& core, int group) {
  Cost most = -core.kFar;
  for (int k = core.start[group] + threadIdx.x % 32; k < core.start[group + 1]; k += 32) {
    if (core.held[k] > 0) most = max(most, core.cost[k]);
  }
  return lanes_max(most, 32);
}

// Experts that a crowd reaches from experts of level `depth`. A warp's work.
template <typename Cost>
__device__ inline bool reach_crowd(const Core<Cost>& core, int group, int depth) {
  const int first = core.start[group] + threadIdx.x % 32, last = core.start[group + 1];
  const Cost free = free_cost(core, group);
  int from = 0;
  for (int k = first; k < last; k += 32) {
    from |= core.held[k] > 0 && core.level[core.expert(k)] == depth && core.cost[k] == free;
  }
  if (__any_sync(kAll, from) == 0) return false;
  bool changed = false;
  for (int k = first; k < last; k += 32) {
    const int e = core.expert(k);
    if (core.level[e] != kUnseen || core.cost[k] != free || !core.open(group, k)) continue;
    atomicMin(&core.parent[e], core.pairs + group);
    changed = true;
  }
  return changed;
}

// Breadth first from experts with a surplus, over moves that cost nothing. The least pair becomes
// an expert's parent, so that the order of threads does not matter. Returns the levels.
template <typename Cost>
__device__ inline int find_levels(const Core<Cost>& core) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    core.level[e] = core.surplus[e] > 0 ? 0 : kUnseen;
    core.parent[e] = core.owner[e] = kUnseen;
    core.flow[e] = 0;
  }
  __syncthreads();
  int depth = 0;
  for (; depth < core.experts; ++depth) {
    bool changed = false;
#pragma unroll 4
    for (int k = threadIdx.x; k < core.pairs; k += blockDim.x) {
      if (core.cost[k] != 0) continue;
      const unsigned ends = core.ends[k], from = ends & 0xffffu;
      if (from == kCrowd || core.level[from] != depth) continue;
      if (core.level[ends >> 16] != kUnseen) continue;
      atomicMin(&core.parent[ends >> 16], k);
      changed = true;
    }
    __syncwarp();
    for (int i = warp; i < core.crowds; i += warps) {
      changed |= reach_crowd(core, core.crowd[i], depth);
      __syncwarp();
    }
    if (__syncthreads_or(changed) == 0) break;
    for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
      if (core.level[e] == kUnseen && core.parent[e] != kUnseen) core.level[e] = depth + 1;
    }
    __syncthreads();
  }
  return depth + 1;
}

// For an expert that a crowd reaches: where from, and the pairs that change. A warp's work.
template <typename Cost>
__device__ inline void find_crowd_step(const Core<Cost>& core, int e) {
  const int group = core.parent[e] - core.pairs;
  const Cost free = free_cost(core, group);
  uint64_t choice = ~0ull;  // any will do: spread over them, so that paths begin apart
  int give = kUnseen;
  for (int k = core.start[group] + threadIdx.x % 32; k < core.start[group + 1]; k += 32) {
    const int other = core.expert(k);
    if (other == e) give = k;
    if (core.held[k] > 0 && core.level[other] == core.level[e] - 1 && core.cost[k] == free) {
      choice = min(choice, static_cast<uint64_t>(mix(k, e)) << 32 | static_cast<unsigned>(k));
    }
  }
  const int take = static_cast<int>(lanes_min(choice, 32) & 0xffffffffu);
  give = lanes_min(give, 32);
  if (threadIdx.x % 32 == 0) {
    core.take[e] = take;
    core.give[e] = give;
    core.before[e] = core.expert(take);
  }
}

// For every expert reached: the expert before it, and the pairs that change.
template <typename Cost>
__device__ inline void find_steps(const Core<Cost>& core) {
  auto reached = [&](int e) { return core.level[e] != 0 && core.level[e] != kUnseen; };
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (!reached(e) || core.parent[e] >= core.pairs) continue;
    core.take[e] = -1;
    core.give[e] = core.parent[e];
    core.before[e] = static_cast<int>(core.ends[core.parent[e]] & 0xffffu);
  }
  __syncwarp();
  if (core.crowds > 0) {
    for (int e = threadIdx.x / 32; e < core.experts; e += blockDim.x / 32) {
      if (reached(e) && core.parent[e] >= core.pairs) find_crowd_step(core, e);
      __syncwarp();
    }
  }
  __syncthreads();
}

}  // namespace ballast::assignment::exact_cuda
