// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_flow_cuda.cuh"

// The first block of a team gathers the window from all regions, solves it, and hands the result
// back: prices, experts of tokens, places of padding.
namespace ballast::assignment::exact_cuda {

constexpr int kSweepWork = 2048;     // what a sweep costs beside its pairs, in pairs
constexpr int kRoundWork = 1 << 17;  // what a round costs beside its sweeps

// Where each block's share of the window begins; in the arena.
struct Gather {
  int* entries;  // [team + 1] running sums
  int* pairs;
  int* groups;
  int blocks;
};

__device__ inline int block_of(const int* sums, int blocks, int index) {
  int low = 0, high = blocks;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (sums[middle] <= index ? low : high) = middle;
  }
  return low;
}

__device__ inline void sum_blocks(Problem& p, const int* counts, int* sums, int blocks) {
  int before = 0;
  for (int base = 0; base < blocks; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int total = 0;
    const int at = block_prefix(i < blocks ? __ldcg(&counts[i]) : 0, p.scratch.ints, total);
    if (i < blocks) sums[i] = before + at;
    before += total;
  }
  if (threadIdx.x == 0) sums[blocks] = before;
  __syncthreads();
}

// Arrays of the core: in shared memory if they fit, else in device memory.
template <class N>
__device__ inline Core<typename N::Cost> lay_out_core(Problem& p, const Repair& repair,
                                                      const Gather& gather, char* arena,
                                                      bool crowds) {
  using Cost = typename N::Cost;
  Core<Cost> core;
  const int e = core.experts = p.experts;
  core.distance = from_arena<Cost>(arena, e);
  core.nearer = from_arena<Cost>(arena, e);
  core.rise = from_arena<Cost>(arena, e);
  core.surplus = from_arena<int>(arena, e);
  core.level = from_arena<int>(arena, e);
  core.parent = from_arena<int>(arena, e);
  core.owner = from_arena<int>(arena, e);
  core.before = from_arena<int>(arena, e);
  core.take = from_arena<int>(arena, e);
  core.give = from_arena<int>(arena, e);
  core.flow = from_arena<int>(arena, e);
  core.room = p.hard;
  core.groups = gather.groups[gather.blocks];
  core.pairs = gather.pairs[gather.blocks];
  core.empties = -1;
  const size_t groups = core.groups + 3;
  const size_t pairs = core.pairs + (crowds ? 2 * static_cast<size_t>(e) : 0);
  const size_t need = pairs * (sizeof(Cost) + 2 * sizeof(int)) + groups * sizeof(int) +
                      (crowds ? pairs + groups : 0) * sizeof(int) + 128;
  const bool fits = arena + need <= p.scratch.arena + p.scratch.arena_bytes;
  core.cost = fits ? from_arena<Cost>(arena, pairs) : reinterpret_cast<Cost*>(repair.core.slack);
  core.ends = fits ? from_arena<unsigned>(arena, pairs) : repair.core.ends;
  core.group = fits ? from_arena<int>(arena, pairs) : repair.core.group;
  core.start = fits ? from_arena<int>(arena, groups) : repair.core.start;
  core.held = fits && crowds ? from_arena<int>(arena, pairs) : repair.core.held;
  core.crowd = fits && crowds ? from_arena<int>(arena, groups) : repair.core.crowd;
  return core;
}

// The pair of a group at an expert, or -1.
template <typename Cost>
__device__ inline int pair_at(const Core<Cost>& core, int group, int expert) {
  for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
    if (core.expert(k) == expert) return k;
  }
  return -1;
}

// One more crowd, of tokens that are worth the same everywhere.
template <typename Cost>
__device__ inline void add_class(Core<Cost>& core, const Problem& p, const int* held, double low) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const int k = core.pairs + e;
    core.cost[k] = static_cast<Cost>(p.price[e] - low);
    core.ends[k] = kCrowd | static_cast<unsigned>(e) << 16;
    core.group[k] = core.groups;
    core.held[k] = __ldcg(&held[e]);
  }
  if (threadIdx.x == 0) {
    core.start[core.groups] = core.pairs;
    core.crowd[core.crowds] = core.groups;
  }
  core.pairs += core.experts;
  ++core.groups;
  ++core.crowds;
}

// Where padding and empty places go at p.price before anything else is known: the cheapest.
__device__ inline void place_classes(Problem& p, const Solution& solution) {
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    int before = 0;
    bool cheapest = true;
    for (int other = 0; other < p.experts; ++other) {
      const bool less = p.price[other] < p.price[e] || (p.price[other] == p.price[e] && other < e);
      if (less) before += p.upper[other] - p.lower[other];
      cheapest = cheapest && !less;
    }
    solution.padding_at[e] = cheapest ? p.padding : 0;
    solution.empty_at[e] = min(max(p.empty - before, 0), p.upper[e] - p.lower[e]);
  }
  __threadfence_block();
  __syncthreads();
}

// One entry of the window, as the blocks have written it.
struct Entry {
  int index, token, length, group;

  __device__ Entry(const Problem& p, const Repair& repair, const Gather& gather, int i) {
    const int block = block_of(gather.entries, gather.blocks, i);
    index = block * p.arguments->shape.chunk + (i - gather.entries[block]);
    token = __ldcg(&repair.entries.token[index]);
    length = __ldcg(&repair.entries.pairs[index]);
    group = length > 0 ? gather.groups[block] + __ldcg(&repair.entries.rank[index]) : -1;
    if (length > 0) start = gather.pairs[block] + __ldcg(&repair.entries.start[index]);
  }
  int start = 0;
};

// Reads lists and entries; finds who is where.
template <typename Cost>
__device__ inline void load_core(Core<Cost>& core, Problem& p, const Repair& repair,
                                 const Solution& solution, const Gather& gather, bool merge) {
  const int64_t region = p.arguments->shape.region_pairs;
  const int* place = solution.next();
  const int entries = gather.entries[gather.blocks];
  if (threadIdx.x == 0) p.scratch.flag = 0;
  for (int i = threadIdx.x; i < core.pairs; i += blockDim.x) {
    const int block = block_of(gather.pairs, gather.blocks, i);
    const int64_t at = block * region + (i - gather.pairs[block]);
    core.cost[i] = static_cast<Cost>(__ldcg(&repair.lists.slack[at]));
    core.ends[i] = kCrowd | static_cast<unsigned>(__ldcg(&repair.lists.expert[at])) << 16;
    if (merge) core.held[i] = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += blockDim.x) {
    const Entry entry(p, repair, gather, i);
    if (merge && entry.length != 0) repair.group_of[entry.token] = entry.group;
    if (entry.group < 0) continue;
    core.start[entry.group] = entry.start;
    const bool alone = !merge || __ldcg(&repair.entries.count[entry.index]) == 1;
    const unsigned from = alone ? __ldcg(&place[entry.token]) : kCrowd;
    for (int k = entry.start; k < entry.start + entry.length; ++k) {
      core.group[k] = entry.group;
      core.ends[k] = (core.ends[k] & 0xffff0000u) | from;
    }
    if (!alone) core.crowd[atomicAdd(&p.scratch.flag, 1)] = entry.group;
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  __threadfence_block();
  __syncthreads();
  core.crowds = p.scratch.flag;
  __syncthreads();
  for (int i = threadIdx.x; i < entries && merge; i += blockDim.x) {
    const Entry entry(p, repair, gather, i);
    const int group = __ldcg(&repair.group_of[__ldcg(&repair.entries.first[entry.index])]);
    if (group < 0 || (core.ends[core.start[group]] & 0xffffu) != kCrowd) continue;
    const int pair = pair_at(core, group, __ldcg(&place[entry.token]));
    if (pair >= 0) atomicAdd(&core.held[pair], 1);
  }
  __syncthreads();
}

// Padding, empty places, surpluses, and which lists are long.
template <typename Cost>
__device__ inline void complete_core(Core<Cost>& core, Problem& p, const Solution& solution,
                                     const int* loads) {
  double low = 1e300;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) low = fmin(low, p.price[e]);
  low = -block_max(-low, p.scratch.sums);
  if (p.padding > 0) add_class(core, p, solution.padding_at, low);
  if (p.empty > 0) {
    core.empties = core.groups;
    add_class(core, p, solution.empty_at, low);
  }
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    int load = __ldcg(&loads[e]);
    if (p.padding > 0) load += __ldcg(&solution.padding_at[e]);
    if (p.empty > 0) load += __ldcg(&solution.empty_at[e]);
    core.surplus[e] = load - p.upper[e];
    core.rise[e] = 0;
    p.hard[e] = p.upper[e] - p.lower[e];  // core.room
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  __syncthreads();
}

// The experts of entries in crowds: a crowd's tokens in order, over its experts in order. One warp
// after the other, so that the order is the tokens'.
template <typename Cost>
__device__ inline void hand_out_crowds(const Core<Cost>& core, Problem& p, const Repair& repair,
                                       const Gather& gather, int* place) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int entries = gather.entries[gather.blocks];
  for (int base = 0; base < entries; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int group = -1, token = 0;
    if (i < entries) {
      const Entry entry(p, repair, gather, i);
      token = entry.token;
      group = __ldcg(&repair.group_of[__ldcg(&repair.entries.first[entry.index])]);
      if (group >= 0 && (core.ends[core.start[group]] & 0xffffu) != kCrowd) group = -1;
    }
    if (__syncthreads_or(group >= 0) == 0) continue;
    for (int warp = 0; warp < warps; ++warp) {
      if (static_cast<int>(threadIdx.x / 32) == warp) {
        const unsigned same = __match_any_sync(kAll, group);
        int rank = __popc(same & ((1u << lane) - 1u));
        if (group >= 0) {
          for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
            const int here = core.held[k];
            if (rank < here) {
              place[token] = core.expert(k);
              break;
            }
            rank -= here;
          }
        }
        __syncwarp();
        if (group >= 0 && lane == __ffs(same) - 1) {
          int used = __popc(same);
          for (int k = core.start[group]; k < core.start[group + 1] && used > 0; ++k) {
            const int part = min(used, core.held[k]);
            core.held[k] -= part;
            used -= part;
          }
        }
      }
      __syncthreads();
    }
  }
}

template <class N>
__device__ inline void hand_out(const Core<typename N::Cost>& core, Problem& p,
                                const Repair& repair, const Solution& solution,
                                const Gather& gather, bool merge) {
  int* place = solution.next();
  int at = core.pairs;
  if (p.empty > 0) {
    at -= core.experts;
    for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
      solution.empty_at[e] = core.held[at + e];
    }
  }
  if (p.padding > 0) {
    at -= core.experts;
    for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
      solution.padding_at[e] = core.held[at + e];
    }
  }
  double low = 1e300;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    p.price[e] += static_cast<double>(core.rise[e]);
    low = fmin(low, p.price[e]);
  }
  low = -block_max(-low, p.scratch.sums);
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    repair.prices[e] = fmin(p.price[e] - low, N::highest_price());
  }
  for (int i = threadIdx.x; i < gather.entries[gather.blocks]; i += blockDim.x) {
    const Entry entry(p, repair, gather, i);
    if (entry.group < 0) continue;
    const unsigned from = core.ends[entry.start] & 0xffffu;
    if (from != kCrowd) place[entry.token] = static_cast<int>(from);
  }
  if (merge && core.crowds > 0) hand_out_crowds(core, p, repair, gather, place);
}

template <typename Cost>
__device__ inline int surplus_of(const Core<Cost>& core, Problem& p) {
  int sum = 0;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) sum += max(0, core.surplus[e]);
  return block_sum(sum, p.scratch.ints);
}

// All of it, for the first block of a team. `loads`: counted tokens at each expert.
template <class N>
__noinline__ __device__ void repair_window(Problem& p, Repair& repair, const Solution& solution,
                                           const Team& team, const int* loads, const Window& window,
                                           int round) {
  char* arena = p.scratch.arena;
  Gather gather;
  gather.blocks = team.size;
  gather.entries = from_arena<int>(arena, team.size + 1);
  gather.pairs = from_arena<int>(arena, team.size + 1);
  gather.groups = from_arena<int>(arena, team.size + 1);
  sum_blocks(p, repair.lists.entries, gather.entries, team.size);
  sum_blocks(p, repair.lists.pairs, gather.pairs, team.size);
  sum_blocks(p, repair.lists.groups, gather.groups, team.size);
  if (round == 0 && (p.has_classes())) place_classes(p, solution);
  using Cost = typename N::Cost;
  Core<Cost> core = lay_out_core<N>(p, repair, gather, arena, window.merge || p.has_classes());
  load_core(core, p, repair, solution, gather, window.merge);
  complete_core(core, p, solution, loads);
  const bool partial = *static_cast<volatile int*>(&repair.verdict->overflow) == round + 1;
  const bool complete = !partial && window.reach >= bin_end(kBins - 1);
  core.budget =
      complete ? core.kFar
               : static_cast<Cost>(fmin(static_cast<double>(window.reach), N::highest_price()));
  if (partial) core.budget = 0;
  const int before = surplus_of(core, p);
  const long long sweep = core.pairs + kSweepWork;
  const int allowed = static_cast<int>(min(max(repair.work_left, 0ll) / sweep, 0x7fffffffll));
  core.limited = p.arguments->max_work > 0;
  core.sweeps_left = allowed;
  const bool balanced = solve_core(core, p);
  __syncthreads();  // all have read repair.work_left
  if (threadIdx.x == 0) {
    repair.work_left -= sweep * (static_cast<long long>(allowed) - core.sweeps_left) + kRoundWork;
  }
  const int moved = before - surplus_of(core, p);
  hand_out<N>(core, p, repair, solution, gather, window.merge);
  if (threadIdx.x == 0) {
    repair.verdict->balanced = balanced ? 1 : 0;
    repair.verdict->moved = moved;
    repair.verdict->large = core.cost == reinterpret_cast<Cost*>(repair.core.slack) ? 1 : 0;
    repair.verdict->spent = core.sweeps_left < 0 || repair.work_left <= 0 ? 1 : 0;
    repair.verdict->stuck = complete && !balanced && core.sweeps_left >= 0 ? 1 : 0;
  }
}

}  // namespace ballast::assignment::exact_cuda
