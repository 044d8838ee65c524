// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_flow_cuda.cuh"

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

__device__ inline void sum_blocks(Block& b, const int* counts, int* sums, int blocks) {
  int before = 0;
  for (int base = 0; base < blocks; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int total = 0;
    const int at = block_prefix(i < blocks ? __ldcg(&counts[i]) : 0, b.int_scratch, total);
    if (i < blocks) sums[i] = before + at;
    before += total;
  }
  if (threadIdx.x == 0) sums[blocks] = before;
  __syncthreads();
}

template <typename T>
__device__ inline T* from_arena(char*& at, size_t count) {
  T* found = reinterpret_cast<T*>(at);
  at += (count * sizeof(T) + 15) / 16 * 16;
  return found;
}

// Arrays of the core: in shared memory if they fit, else in device memory.
template <class N>
__device__ inline Core<typename N::Cost> lay_out_core(Block& b, const Gather& gather, char* arena,
                                                      bool crowds) {
  using Cost = typename N::Cost;
  Core<Cost> core;
  const int e = core.experts = b.experts;
  core.distance = from_arena<Cost>(arena, e);
  core.rise = from_arena<Cost>(arena, e);
  core.surplus = from_arena<int>(arena, e);
  core.level = from_arena<int>(arena, e);
  core.parent = from_arena<int>(arena, e);
  core.owner = from_arena<int>(arena, e);
  core.before = from_arena<int>(arena, e);
  core.take = from_arena<int>(arena, e);
  core.give = from_arena<int>(arena, e);
  core.flow = from_arena<int>(arena, e);
  core.room = b.hard;
  core.groups = gather.groups[gather.blocks];
  core.pairs = gather.pairs[gather.blocks];
  core.empties = -1;
  const size_t groups = core.groups + 3;
  const size_t pairs = core.pairs + (crowds ? 2 * static_cast<size_t>(e) : 0);
  const size_t need = pairs * (sizeof(Cost) + 2 * sizeof(int)) + groups * sizeof(int) +
                      (crowds ? pairs + groups : 0) * sizeof(int) + 128;
  const bool fits = arena + need <= b.arena + b.arena_bytes;
  core.cost = fits ? from_arena<Cost>(arena, pairs) : reinterpret_cast<Cost*>(b.work.core_slack);
  core.ends = fits ? from_arena<unsigned>(arena, pairs) : b.work.core_ends;
  core.group = fits ? from_arena<int>(arena, pairs) : b.work.core_group;
  core.start = fits ? from_arena<int>(arena, groups) : b.work.core_start;
  core.held = fits && crowds ? from_arena<int>(arena, pairs) : b.work.core_held;
  core.crowd = fits && crowds ? from_arena<int>(arena, groups) : b.work.core_crowd;
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
__device__ inline void add_class(Core<Cost>& core, const Block& b, const int* held, double low) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const int k = core.pairs + e;
    core.cost[k] = static_cast<Cost>(b.price[e] - low);
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

// Where padding and empty places go at b.price before anything else is known: the cheapest.
__device__ inline void place_classes(Block& b) {
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    int before = 0;
    bool cheapest = true;
    for (int other = 0; other < b.experts; ++other) {
      const bool less = b.price[other] < b.price[e] || (b.price[other] == b.price[e] && other < e);
      if (less) before += b.upper[other] - b.lower[other];
      cheapest = cheapest && !less;
    }
    b.work.padding_at[e] = cheapest ? b.padding : 0;
    b.work.empty_at[e] = min(max(b.empty - before, 0), b.upper[e] - b.lower[e]);
  }
  __threadfence_block();
  __syncthreads();
}

// One entry of the window, as the blocks have written it.
struct Entry {
  int index, token, length, group;

  __device__ Entry(const Block& b, const Gather& gather, int i) {
    const int block = block_of(gather.entries, gather.blocks, i);
    index = block * b.arguments->shape.chunk + (i - gather.entries[block]);
    token = __ldcg(&b.work.entry_token[index]);
    length = __ldcg(&b.work.entry_pairs[index]);
    group = length > 0 ? gather.groups[block] + __ldcg(&b.work.entry_rank[index]) : -1;
    if (length > 0) start = gather.pairs[block] + __ldcg(&b.work.entry_start[index]);
  }
  int start = 0;
};

// Reads lists and entries; finds who is where.
template <typename Cost>
__device__ inline void load_core(Core<Cost>& core, Block& b, const Gather& gather, bool merge) {
  const int64_t region = b.arguments->shape.region_pairs;
  const int* place = b.work.place[1 - b.place];
  const int entries = gather.entries[gather.blocks];
  if (threadIdx.x == 0) b.flag = 0;
  for (int i = threadIdx.x; i < core.pairs; i += blockDim.x) {
    const int block = block_of(gather.pairs, gather.blocks, i);
    const int64_t at = block * region + (i - gather.pairs[block]);
    core.cost[i] = static_cast<Cost>(__ldcg(&b.work.region_slack[at]));
    core.ends[i] = kCrowd | static_cast<unsigned>(__ldcg(&b.work.region_expert[at])) << 16;
    if (merge) core.held[i] = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += blockDim.x) {
    const Entry entry(b, gather, i);
    if (merge && entry.length != 0) b.work.group_of[entry.token] = entry.group;
    if (entry.group < 0) continue;
    core.start[entry.group] = entry.start;
    const bool alone = !merge || __ldcg(&b.work.entry_count[entry.index]) == 1;
    const unsigned from = alone ? __ldcg(&place[entry.token]) : kCrowd;
    for (int k = entry.start; k < entry.start + entry.length; ++k) {
      core.group[k] = entry.group;
      core.ends[k] = (core.ends[k] & 0xffff0000u) | from;
    }
    if (!alone) core.crowd[atomicAdd(&b.flag, 1)] = entry.group;
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  __threadfence_block();
  __syncthreads();
  core.crowds = b.flag;
  __syncthreads();
  for (int i = threadIdx.x; i < entries && merge; i += blockDim.x) {
    const Entry entry(b, gather, i);
    const int group = __ldcg(&b.work.group_of[__ldcg(&b.work.entry_first[entry.index])]);
    if (group < 0 || (core.ends[core.start[group]] & 0xffffu) != kCrowd) continue;
    const int pair = pair_at(core, group, __ldcg(&place[entry.token]));
    if (pair >= 0) atomicAdd(&core.held[pair], 1);
  }
  __syncthreads();
}

// Padding, empty places, surpluses, and which lists are long.
template <typename Cost>
__device__ inline void complete_core(Core<Cost>& core, Block& b, const int* loads) {
  double low = 1e300;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) low = fmin(low, b.price[e]);
  low = -block_max(-low, b.sum_scratch);
  if (b.padding > 0) add_class(core, b, b.work.padding_at, low);
  if (b.empty > 0) {
    core.empties = core.groups;
    add_class(core, b, b.work.empty_at, low);
  }
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    int load = __ldcg(&loads[e]);
    if (b.padding > 0) load += __ldcg(&b.work.padding_at[e]);
    if (b.empty > 0) load += __ldcg(&b.work.empty_at[e]);
    core.surplus[e] = load - b.upper[e];
    core.rise[e] = 0;
    b.hard[e] = b.upper[e] - b.lower[e];  // core.room
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  __syncthreads();
}

// The experts of entries in crowds: a crowd's tokens in order, over its experts in order. One warp
// after the other, so that the order is the tokens'.
template <typename Cost>
__device__ inline void hand_out_crowds(const Core<Cost>& core, Block& b, const Gather& gather,
                                       int* place) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int entries = gather.entries[gather.blocks];
  for (int base = 0; base < entries; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int group = -1, token = 0;
    if (i < entries) {
      const Entry entry(b, gather, i);
      token = entry.token;
      group = __ldcg(&b.work.group_of[__ldcg(&b.work.entry_first[entry.index])]);
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
__device__ inline void hand_out(const Core<typename N::Cost>& core, Block& b, const Gather& gather,
                                bool merge) {
  int* place = b.work.place[1 - b.place];
  int at = core.pairs;
  if (b.empty > 0) {
    at -= core.experts;
    for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
      b.work.empty_at[e] = core.held[at + e];
    }
  }
  if (b.padding > 0) {
    at -= core.experts;
    for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
      b.work.padding_at[e] = core.held[at + e];
    }
  }
  double low = 1e300;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    b.price[e] += static_cast<double>(core.rise[e]);
    low = fmin(low, b.price[e]);
  }
  low = -block_max(-low, b.sum_scratch);
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    b.work.prices[e] = fmin(b.price[e] - low, N::highest_price());
  }
  for (int i = threadIdx.x; i < gather.entries[gather.blocks]; i += blockDim.x) {
    const Entry entry(b, gather, i);
    if (entry.group < 0) continue;
    const unsigned from = core.ends[entry.start] & 0xffffu;
    if (from != kCrowd) place[entry.token] = static_cast<int>(from);
  }
  if (merge && core.crowds > 0) hand_out_crowds(core, b, gather, place);
}

template <typename Cost>
__device__ inline int surplus_of(const Core<Cost>& core, Block& b) {
  int sum = 0;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) sum += max(0, core.surplus[e]);
  return block_sum(sum, b.int_scratch);
}

// All of it, for the first block of a team. `loads`: counted tokens at each expert.
template <class N>
__noinline__ __device__ void repair(Block& b, const Team& team, const int* loads,
                                    const Window& window, int round) {
  char* arena = b.arena;
  Gather gather;
  gather.blocks = team.size;
  gather.entries = from_arena<int>(arena, team.size + 1);
  gather.pairs = from_arena<int>(arena, team.size + 1);
  gather.groups = from_arena<int>(arena, team.size + 1);
  sum_blocks(b, b.work.block_entries, gather.entries, team.size);
  sum_blocks(b, b.work.block_pairs, gather.pairs, team.size);
  sum_blocks(b, b.work.block_groups, gather.groups, team.size);
  if (round == 0 && (b.padding > 0 || b.empty > 0)) place_classes(b);
  using Cost = typename N::Cost;
  Core<Cost> core = lay_out_core<N>(b, gather, arena, window.merge || b.padding > 0 || b.empty > 0);
  load_core(core, b, gather, window.merge);
  complete_core(core, b, loads);
  const bool partial = *static_cast<volatile int*>(&b.work.verdict->overflow) == round + 1;
  const bool complete = !partial && window.reach >= bin_end(kBins - 1);
  core.budget =
      complete ? core.kFar
               : static_cast<Cost>(fmin(static_cast<double>(window.reach), N::highest_price()));
  if (partial) core.budget = 0;
  const int before = surplus_of(core, b);
  const long long sweep = core.pairs + kSweepWork;
  const int allowed = static_cast<int>(min(max(b.work_left, 0ll) / sweep, 0x7fffffffll));
  core.sweeps_left = allowed;
  const bool balanced = solve_core(core, b);
  __syncthreads();  // all have read b.work_left
  if (threadIdx.x == 0) {
    b.work_left -= sweep * (static_cast<long long>(allowed) - core.sweeps_left) + kRoundWork;
  }
  const int moved = before - surplus_of(core, b);
  hand_out<N>(core, b, gather, window.merge);
  if (threadIdx.x == 0) {
    b.work.verdict->balanced = balanced ? 1 : 0;
    b.work.verdict->moved = moved;
    b.work.verdict->large = core.cost == reinterpret_cast<Cost*>(b.work.core_slack) ? 1 : 0;
    b.work.verdict->spent = core.sweeps_left < 0 || b.work_left <= 0 ? 1 : 0;
    b.work.verdict->stuck = complete && !balanced && core.sweeps_left >= 0 ? 1 : 0;
  }
}

}  // namespace ballast::assignment::exact_cuda
