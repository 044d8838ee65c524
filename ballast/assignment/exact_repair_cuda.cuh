// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_flow_cuda.cuh"

// The first block of a team gathers the window from all regions, solves it, and hands the result
// back: prices, experts of tokens, places of padding.
namespace ballast::exact_cuda {

constexpr double kHighestPrice = 1125899906842624.0;  // 2^50, so that sums with scores are exact

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
__device__ inline Core lay_out_core(Block& b, const Gather& gather, char* arena) {
  Core core;
  const int e = core.experts = b.experts;
  core.distance = from_arena<long long>(arena, e);
  core.rise = from_arena<long long>(arena, e);
  int** arrays[] = {&core.surplus, &core.level, &core.parent, &core.owner,
                    &core.before,  &core.take,  &core.give,   &core.flow};
  for (int** array : arrays) *array = from_arena<int>(arena, e);
  core.room = b.hard;
  core.groups = gather.groups[gather.blocks];
  core.pairs = gather.pairs[gather.blocks];
  core.empties = -1;
  const size_t groups = core.groups + 3, pairs = core.pairs + 2 * static_cast<size_t>(e);
  const size_t need =
      pairs * (sizeof(long long) + sizeof(int) + sizeof(uint16_t)) + groups * 3 * sizeof(int) + 128;
  if (arena + need <= b.arena + b.arena_bytes) {
    core.slack = from_arena<long long>(arena, pairs);
    core.held = from_arena<int>(arena, pairs);
    core.start = from_arena<int>(arena, groups);
    core.wide = from_arena<int>(arena, groups);
    core.tight = from_arena<int>(arena, groups);
    core.expert = from_arena<uint16_t>(arena, pairs);
  } else {
    core.slack = b.work.core_slack;
    core.held = b.work.core_held;
    core.start = b.work.core_start;
    core.wide = b.work.core_wide;
    core.tight = b.work.core_tight;
    core.expert = b.work.core_expert;
  }
  return core;
}

// The pair of a group at an expert, or -1.
__device__ inline int pair_at(const Core& core, int group, int expert) {
  for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
    if (core.expert[k] == expert) return k;
  }
  return -1;
}

// One more group, of tokens that are worth the same everywhere.
__device__ inline void add_class(Core& core, const Block& b, const int* held, double low) {
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) {
    const int k = core.pairs + e;
    core.slack[k] = static_cast<long long>(b.price[e] - low);
    core.expert[k] = static_cast<uint16_t>(e);
    core.held[k] = __ldcg(&held[e]);
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  core.pairs += core.experts;
  ++core.groups;
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

// Reads lists and entries; counts who is where.
__device__ inline void load_core(Core& core, Block& b, const Gather& gather, bool merge) {
  const int64_t region = b.arguments->shape.region_pairs;
  const int chunk = b.arguments->shape.chunk;
  for (int i = threadIdx.x; i < core.pairs; i += blockDim.x) {
    const int block = block_of(gather.pairs, gather.blocks, i);
    const int64_t at = block * region + (i - gather.pairs[block]);
    core.slack[i] = __ldcg(&b.work.region_slack[at]);
    core.expert[i] = __ldcg(&b.work.region_expert[at]);
    core.held[i] = 0;
  }
  const int entries = gather.entries[gather.blocks];
  for (int i = threadIdx.x; i < entries; i += blockDim.x) {
    const int block = block_of(gather.entries, gather.blocks, i);
    const int entry = block * chunk + (i - gather.entries[block]);
    const int length = __ldcg(&b.work.entry_pairs[entry]);
    const int group = gather.groups[block] + __ldcg(&b.work.entry_rank[entry]);
    if (length > 0) core.start[group] = gather.pairs[block] + __ldcg(&b.work.entry_start[entry]);
    if (merge && length != 0) {
      b.work.group_of[__ldcg(&b.work.entry_token[entry])] = length > 0 ? group : -1;
    }
  }
  if (threadIdx.x == 0) core.start[core.groups] = core.pairs;
  __threadfence_block();
  __syncthreads();
  const int* place = b.work.place[1 - b.place];
  for (int i = threadIdx.x; i < entries; i += blockDim.x) {
    const int block = block_of(gather.entries, gather.blocks, i);
    const int entry = block * chunk + (i - gather.entries[block]);
    int group = gather.groups[block] + __ldcg(&b.work.entry_rank[entry]);
    if (merge) {
      group = __ldcg(&b.work.group_of[__ldcg(&b.work.entry_first[entry])]);
    } else if (__ldcg(&b.work.entry_pairs[entry]) < 0) {
      group = -1;
    }
    if (group < 0) continue;
    const int pair = pair_at(core, group, __ldcg(&place[__ldcg(&b.work.entry_token[entry])]));
    if (pair >= 0) atomicAdd(&core.held[pair], 1);
  }
  __syncthreads();
}

// Padding, empty places, surpluses, and which lists are long.
__device__ inline void complete_core(Core& core, Block& b, const int* loads) {
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
  if (threadIdx.x == 0) {
    core.start[core.groups] = core.pairs;
    b.flag = 0;
  }
  __syncthreads();
  for (int g = threadIdx.x; g < core.groups; g += blockDim.x) {
    if (core.start[g + 1] - core.start[g] > kWide) core.wide[atomicAdd(&b.flag, 1)] = g;
  }
  __syncthreads();
  core.wide_count = b.flag;
  __syncthreads();
}

// The experts of entries whose lists are shared: a group's tokens in order, over its experts in
// order. One warp after the other, so that the order is the tokens'.
__device__ inline void hand_out_shared(const Core& core, Block& b, const Gather& gather,
                                       int* place) {
  const int chunk = b.arguments->shape.chunk, lane = threadIdx.x % 32;
  const int entries = gather.entries[gather.blocks];
  const int warps = blockDim.x / 32;
  for (int base = 0; base < entries; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int group = -1, token = 0;
    if (i < entries) {
      const int block = block_of(gather.entries, gather.blocks, i);
      const int entry = block * chunk + (i - gather.entries[block]);
      token = __ldcg(&b.work.entry_token[entry]);
      group = __ldcg(&b.work.group_of[__ldcg(&b.work.entry_first[entry])]);
    }
    for (int warp = 0; warp < warps; ++warp) {
      if (static_cast<int>(threadIdx.x / 32) == warp) {
        const unsigned same = __match_any_sync(kAll, group);
        int rank = __popc(same & ((1u << lane) - 1u));
        if (group >= 0) {
          for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
            const int here = core.held[k];
            if (rank < here) {
              place[token] = core.expert[k];
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

__device__ inline void hand_out(const Core& core, Block& b, const Gather& gather, bool merge) {
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
    b.work.prices[e] = fmin(b.price[e] - low, kHighestPrice);
  }
  if (merge) {
    hand_out_shared(core, b, gather, place);
    return;
  }
  const int chunk = b.arguments->shape.chunk;
  for (int i = threadIdx.x; i < gather.entries[gather.blocks]; i += blockDim.x) {
    const int block = block_of(gather.entries, gather.blocks, i);
    const int entry = block * chunk + (i - gather.entries[block]);
    if (__ldcg(&b.work.entry_pairs[entry]) < 0) continue;
    const int group = gather.groups[block] + __ldcg(&b.work.entry_rank[entry]);
    for (int k = core.start[group]; k < core.start[group + 1]; ++k) {
      if (core.held[k] > 0) place[__ldcg(&b.work.entry_token[entry])] = core.expert[k];
    }
  }
}

__device__ inline int surplus_of(const Core& core, Block& b) {
  int sum = 0;
  for (int e = threadIdx.x; e < core.experts; e += blockDim.x) sum += max(0, core.surplus[e]);
  return block_sum(sum, b.int_scratch);
}

// All of it, for the first block of a team. `loads`: counted tokens at each expert.
__device__ inline void repair(Block& b, const Team& team, const int* loads, const Window& window,
                              int round) {
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
  Core core = lay_out_core(b, gather, arena);
  load_core(core, b, gather, window.merge);
  complete_core(core, b, loads);
  const bool partial = *static_cast<volatile int*>(&b.work.verdict->overflow) == round + 1;
  const bool complete = !partial && window.reach >= bin_end(kBins - 1);
  core.budget = complete ? 2 * kFar : static_cast<long long>(fmin(window.reach, kHighestPrice));
  if (partial) core.budget = 0;
  const int before = surplus_of(core, b);
  const bool balanced = solve_core(core, b, team.rank);
  const int moved = before - surplus_of(core, b);
  hand_out(core, b, gather, window.merge);
  trace_add(b, team.rank, kTraceGroups, core.groups);
  trace_add(b, team.rank, kTracePairs, core.pairs);
  if (threadIdx.x == 0) {
    b.work.verdict->balanced = balanced ? 1 : 0;
    b.work.verdict->moved = moved;
    b.work.verdict->stuck = complete && !balanced ? 1 : 0;
  }
}

}  // namespace ballast::exact_cuda
