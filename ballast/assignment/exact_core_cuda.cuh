// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_lists_cuda.cuh"

// The window as one sparse transportation problem in one block: groups of equal tokens, each with
// a list of experts. Padding and empty places are two more groups.
namespace ballast::exact_cuda {

constexpr long long kFar = 1ll << 61;
constexpr int kUnseen = 0x3fffffff;
constexpr int kWide = 16;  // longer lists take a warp

struct Core {
  int groups, pairs, experts;
  int wide_count, tight_count;
  int empties;       // the group of empty places, or -1
  int* start;        // [groups + 1]
  int* wide;         // groups with long lists
  int* tight;        // groups that can move at the present prices
  long long* slack;  // [pairs] at the prices of the window
  uint16_t* expert;
  int* held;  // tokens of the group at this expert
  // [E]
  long long* distance;
  long long* rise;  // of the price since the window
  int* surplus;     // tokens above the bound; below 0: room
  int* level;
  int* parent;  // group that reaches this expert
  int* owner;   // sink whose path this expert is on
  int* before;  // the path's expert before this one
  int* take;    // pair that gives a token up, and
  int* give;    // pair that gets it
  int* flow;
  long long budget;  // of rises that cannot hurt what is outside the window
  const int* room;   // bound on empty places at each expert: upper - lower

  // Score - price of a pair, relative to the best of its group at the prices of the window.
  __device__ long long worth(int pair) const { return -slack[pair] - rise[expert[pair]]; }
  __device__ bool open(int group, int pair) const {
    return group != empties || held[pair] < room[expert[pair]];
  }
};

// One sweep of Bellman and Ford: experts reached through one group. `lanes`: threads on the list.
__device__ inline bool relax_group(const Core& core, int group, int lane, int lanes) {
  const int first = core.start[group], last = core.start[group + 1];
  long long near = kFar;
  for (int k = first + lane; k < last; k += lanes) {
    if (core.held[k] <= 0) continue;
    const long long d = *static_cast<volatile long long*>(&core.distance[core.expert[k]]);
    if (d < kFar) near = min(near, d + core.worth(k));
  }
  if (lanes == 32) near = lanes_min(near, 32);
  if (near >= kFar) return false;
  bool changed = false;
  for (int k = first + lane; k < last; k += lanes) {
    const long long d = near - core.worth(k);
    const int e = core.expert[k];
    if (d < *static_cast<volatile long long*>(&core.distance[e]) && core.open(group, k)) {
      atomicMin(&core.distance[e], d);
      changed = true;
    }
  }
  return changed;
}

// Shortest distances from experts with a surplus, by reduced costs. Returns the sweeps.
__device__ inline int find_distances(const Core& core) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    core.distance[e] = core.surplus[e] > 0 ? 0 : kFar;
  }
  __syncthreads();
  for (int sweep = 1; sweep <= core.experts + 2; ++sweep) {
    bool changed = false;
    for (int g = threadIdx.x; g < core.groups; g += blockDim.x) {
      if (core.start[g + 1] - core.start[g] <= kWide) changed |= relax_group(core, g, 0, 1);
    }
    __syncwarp();
    for (int i = warp; i < core.wide_count; i += warps) {
      changed |= relax_group(core, core.wide[i], threadIdx.x % 32, 32);
      __syncwarp();
    }
    if (__syncthreads_or(changed) == 0) return sweep;
  }
  return core.experts + 2;
}

// Raises prices so that every reachable expert with room is reached at no cost, as far as the
// budget goes. False: there is none.
__device__ inline bool raise_prices(Core& core, long long* scratch) {
  long long farthest = -1;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (core.surplus[e] < 0 && core.distance[e] < kFar) farthest = max(farthest, core.distance[e]);
  }
  farthest = block_max(farthest, scratch);
  const bool reached = farthest >= 0;
  if (!reached && core.budget >= kFar) return false;
  const long long rise = reached ? min(farthest, core.budget) : core.budget;
  core.budget -= rise;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    if (core.distance[e] < rise) core.rise[e] += rise - core.distance[e];
  }
  __syncthreads();
  return reached;
}

// The level of worth at which a group's tokens move freely.
__device__ inline long long free_worth(const Core& core, int group, int lane, int lanes) {
  long long least = kFar;
  for (int k = core.start[group] + lane; k < core.start[group + 1]; k += lanes) {
    if (core.held[k] > 0) least = min(least, core.worth(k));
  }
  return lanes == 32 ? lanes_min(least, 32) : least;
}

// Lists the groups that have another expert at no cost. Wide ones are tried anyway.
__device__ inline void find_tight(Core& core, int* counter) {
  if (threadIdx.x == 0) *counter = 0;
  __syncthreads();
  for (int g = threadIdx.x; g < core.groups; g += blockDim.x) {
    const int first = core.start[g], last = core.start[g + 1];
    if (last - first > kWide) continue;
    const long long level = free_worth(core, g, 0, 1);
    int count = 0;
    for (int k = first; k < last; ++k) count += core.worth(k) == level;
    if (count > 1) core.tight[atomicAdd(counter, 1)] = g;
  }
  __syncthreads();
  core.tight_count = *counter;
  __syncthreads();
}

// Experts that a group reaches from experts of level `depth`. The group with the least number
// becomes their parent, so that the order of threads does not matter.
__device__ inline bool reach_group(const Core& core, int group, int depth, int lane, int lanes) {
  const int first = core.start[group], last = core.start[group + 1];
  const long long worth = free_worth(core, group, lane, lanes);
  int from = 0;
  for (int k = first + lane; k < last; k += lanes) {
    from |= core.held[k] > 0 && core.level[core.expert[k]] == depth && core.worth(k) == worth;
  }
  if (lanes == 32) from = __any_sync(kAll, from);
  if (from == 0) return false;
  bool changed = false;
  for (int k = first + lane; k < last; k += lanes) {
    const int e = core.expert[k];
    if (core.level[e] != kUnseen || core.worth(k) != worth || !core.open(group, k)) continue;
    if (group < *static_cast<volatile int*>(&core.parent[e])) atomicMin(&core.parent[e], group);
    changed = true;
  }
  return changed;
}

// Breadth first from experts with a surplus, over moves that cost nothing. Returns the levels.
__device__ inline int find_levels(const Core& core) {
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
    for (int i = threadIdx.x; i < core.tight_count; i += blockDim.x) {
      changed |= reach_group(core, core.tight[i], depth, 0, 1);
    }
    __syncwarp();
    for (int i = warp; i < core.wide_count; i += warps) {
      changed |= reach_group(core, core.wide[i], depth, threadIdx.x % 32, 32);
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

// For every expert reached: the expert before it, and the pairs that change. A warp each.
__device__ inline void find_steps(const Core& core) {
  const int lane = threadIdx.x % 32;
  for (int e = threadIdx.x / 32; e < core.experts; e += blockDim.x / 32) {
    const int depth = core.level[e];
    if (depth == 0 || depth == kUnseen) continue;
    const int group = core.parent[e];
    const long long worth = free_worth(core, group, lane, 32);
    int take = kUnseen, give = kUnseen;
    for (int k = core.start[group] + lane; k < core.start[group + 1]; k += 32) {
      const int other = core.expert[k];
      if (other == e) give = k;
      if (core.held[k] > 0 && core.level[other] == depth - 1 && core.worth(k) == worth) {
        take = min(take, k);
      }
    }
    take = lanes_min(take, 32);
    give = lanes_min(give, 32);
    if (lane == 0) {
      core.take[e] = take;
      core.give[e] = give;
      core.before[e] = core.expert[take];
    }
  }
  __syncthreads();
}

}  // namespace ballast::exact_cuda
