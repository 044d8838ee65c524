// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_window_cuda.cuh"

// Every block writes the lists of its tokens in the window to its region of device memory.
namespace ballast::assignment::exact_cuda {

constexpr int kLeastCrowd = 8;  // tokens with one list that are worth treating as one

__device__ inline void clear_table(Problem& p, const Repair& repair, const Team& team) {
  const int threads = team.size * blockDim.x, size = p.arguments->shape.table;
  for (int i = team.rank * blockDim.x + threadIdx.x; i < size; i += threads) {
    repair.table.key[i] = 0;
    repair.table.first[i] = 0;
    repair.table.count[i] = 0;
  }
}

// Enters the lists' hashes into the team's table, which keeps the first token of each.
template <class N, class M>
__noinline__ __device__ void enter_table(Problem& p, const Repair& repair, const Window& window,
                                         int count, long long* lists) {
  const unsigned mask = p.arguments->shape.table - 1;
  typename N::Worth price[M::kValues];
  load_prices<N, M>(p, price);
  for_entries<M>(p, repair, count, [&](int entry, int token, int lane) {
    typename N::Worth slack[M::kValues];
    const unsigned in = list_of<N, M>(p, window, token, lane, price, slack);
    unsigned long long key = 0;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      if ((in >> i & 1u) != 0) {
        const auto bits = static_cast<uint64_t>(static_cast<long long>(slack[i]));
        key += mix64(mix64(bits + 0x9E3779B97F4A7C15ull) + M::expert(lane, i));
      }
    }
    key = lanes_sum(key, M::kLanes) | 1ull;
    if (entry >= 0 && lane == 0) {
      unsigned slot = static_cast<unsigned>(key >> 20) & mask;
      while (true) {
        const unsigned long long old = atomicCAS(&repair.table.key[slot], 0ull, key);
        if (old == 0) atomicAdd(reinterpret_cast<unsigned long long*>(lists), 1ull);
        if (old == 0 || old == key) break;
        slot = (slot + 1) & mask;
      }
      atomicMax(&repair.table.first[slot], p.rows.tokens - token);
      atomicAdd(&repair.table.count[slot], 1);
      repair.entries.first[entry] = static_cast<int>(slot);
    }
  });
}

// Leaves out experts of a list that is too long. The token's own expert stays.
template <class M>
__device__ inline unsigned shortened(unsigned in, int token, int lane, int own) {
  const int length = lanes_sum(__popc(in), M::kLanes);
  if (length <= kShortList) return in;
  const auto limit = static_cast<unsigned>(4294967295.0 * kShortList / length);
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(lane, i);
    if (expert != own && mix(token, expert) > limit) in &= ~(1u << i);
  }
  return in;
}

// The list that an entry writes: none if another token has it already.
template <class N, class M>
__device__ inline unsigned own_list(Problem& p, const Repair& repair, const Solution& solution,
                                    const Window& window, int entry, int token, int lane,
                                    const typename N::Worth (&price)[M::kValues],
                                    typename N::Worth (&slack)[M::kValues], int& first) {
  unsigned in = list_of<N, M>(p, window, token, lane, price, slack);
  bool alone = true;
  first = token;
  if (window.merge && entry >= 0) {
    const int slot = repair.entries.first[entry];
    const int count = __ldcg(&repair.table.count[slot]);
    alone = count < kLeastCrowd;
    if (!alone) first = p.rows.tokens - __ldcg(&repair.table.first[slot]);
    if (lane == 0) repair.entries.count[entry] = alone ? 1 : count;
  }
  const int own = token >= 0 ? solution.next()[token] : -1;
  const unsigned few = shortened<M>(in, token, lane, own);
  if (window.shorten && alone) in = few;
  return first == token && mix(token, window.salt) <= window.sample ? in : 0;
}

// Starts of the lists, by running sums over the entries; a list that does not fit is left out.
__device__ inline void place_lists(Problem& p, const Repair& repair, int rank, int count,
                                   int round) {
  const int room = p.arguments->shape.region_pairs;
  int pairs = 0, lists = 0, used = 0;
  for (int base = 0; base < count; base += blockDim.x) {
    const int entry = p.rows.first + base + threadIdx.x;
    const bool mine = base + static_cast<int>(threadIdx.x) < count;
    const int length = mine ? max(0, repair.entries.pairs[entry]) : 0;
    int total = 0;
    const int start = pairs + block_prefix(length, p.scratch.ints, total);
    const bool fits = mine && start + length <= room;
    if (mine && !fits && length > 0) repair.entries.pairs[entry] = -1;
    if (mine) repair.entries.start[entry] = start;
    if (fits) used = max(used, start + length);
    pairs += total;
    const int before = block_prefix(length > 0 && fits ? 1 : 0, p.scratch.ints, total);
    if (mine) repair.entries.rank[entry] = lists + before;
    lists += total;
  }
  used = block_max(used, p.scratch.ints);
  if (threadIdx.x == 0) {
    repair.lists.entries[rank] = count;
    repair.lists.pairs[rank] = used;
    repair.lists.groups[rank] = lists;
    if (pairs > used) atomicMax(&repair.verdict->overflow, round + 1);
  }
}

template <class N, class M>
__noinline__ __device__ void write_lists(Problem& p, const Repair& repair, const Solution& solution,
                                         const Team& team, const Window& window, int count,
                                         int round) {
  typename N::Worth price[M::kValues];
  load_prices<N, M>(p, price);
  for_entries<M>(p, repair, count, [&](int entry, int token, int lane) {
    typename N::Worth slack[M::kValues];
    int first = 0;
    const unsigned in =
        own_list<N, M>(p, repair, solution, window, entry, token, lane, price, slack, first);
    const int length = lanes_sum(__popc(in), M::kLanes);
    if (entry >= 0 && lane == 0) {
      repair.entries.pairs[entry] = length == 0 && first == token ? -1 : length;
    }
  });
  __syncthreads();
  place_lists(p, repair, team.rank, count, round);
  const int64_t region = static_cast<int64_t>(team.rank) * p.arguments->shape.region_pairs;
  for_entries<M>(p, repair, count, [&](int entry, int token, int lane) {
    typename N::Worth slack[M::kValues];
    int first = 0;
    unsigned in =
        own_list<N, M>(p, repair, solution, window, entry, token, lane, price, slack, first);
    if (entry < 0 || repair.entries.pairs[entry] < 0) in = 0;
    int before = __popc(in);
    for (int step = 1; step < M::kLanes; step *= 2) {
      const int other = __shfl_up_sync(kAll, before, step, M::kLanes);
      if (lane >= step) before += other;
    }
    before -= __popc(in);
    if (in != 0) {
      int64_t at = region + repair.entries.start[entry] + before;
#pragma unroll
      for (int i = 0; i < M::kValues; ++i) {
        if ((in >> i & 1u) == 0) continue;
        repair.lists.slack[at] = static_cast<long long>(slack[i]);
        repair.lists.expert[at] = static_cast<uint16_t>(M::expert(lane, i));
        ++at;
      }
    }
    __syncwarp();
    if (entry >= 0 && lane == 0) repair.entries.first[entry] = first;
  });
}

}  // namespace ballast::assignment::exact_cuda
