// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_cuda.cuh"

// What callers get: tokens sorted by expert, loads, prices, and how good the result is.
namespace ballast::assignment::exact_cuda {

// How many tokens each expert keeps so that all bounds can be met, for loads that do not meet them.
// One thread; `keep` holds the loads, `free` the tokens without an expert.
__device__ inline void plan_eviction(const Block& b, int* keep, int free) {
  int missing = 0;
  for (int e = 0; e < b.experts; ++e) {
    if (keep[e] > b.upper[e]) {
      free += keep[e] - b.upper[e];
      keep[e] = b.upper[e];
    }
    missing += max(0, b.lower[e] - keep[e]);
  }
  for (int e = 0; e < b.experts && missing > free; ++e) {
    const int more = min(max(0, keep[e] - b.lower[e]), missing - free);
    keep[e] -= more;
    free += more;
  }
}

// Takes tokens from experts that have more than they keep, the last ones in order. One warp.
__device__ inline void evict(const Block& b, int* place, const int* keep, int* seen) {
  const Rows& rows = b.rows;
  const int lane = threadIdx.x;
  auto expert_of = [&](int t) {
    return t < rows.tokens && is_counted(rows, t) ? __ldcg(&place[t]) : -1;
  };
  int next = expert_of(lane);
  for (int base = 0; base < rows.tokens; base += 32) {
    const int expert = next;
    next = expert_of(base + 32 + lane);
    const unsigned same = __match_any_sync(kAll, expert);
    const int before = __popc(same & ((1u << lane) - 1u));
    if (expert >= 0 && seen[expert] + before >= keep[expert]) place[base + lane] = -1;
    __syncwarp();
    if (expert >= 0 && before == 0) seen[expert] += __popc(same);
    __syncwarp();
  }
}

// The best expert for a token among those with room; where `required`, below their lower bound.
// One warp.
__device__ inline int best_with_room(const Block& b, const int* keep, int token, bool required) {
  double best = minus_infinity();
  int at = b.experts;  // a forbidden pair is better than none
  for (int e = threadIdx.x; e < b.experts; e += 32) {
    if (keep[e] >= (required ? b.lower[e] : b.upper[e])) continue;
    const double score = mended(b.rows, raw_score(b.rows, token, e));
    const double profit = score * b.exact_scale - b.price[e];
    if (at == b.experts || profit > best) {
      best = profit;
      at = e;
    }
  }
  const double top = lanes_max(at < b.experts ? best : minus_infinity(), 32);
  const int found = lanes_min(at < b.experts && best == top ? at : b.experts, 32);
  return found < b.experts ? found : min(lanes_min(at, 32), b.experts - 1);
}

// Gives tokens without an expert to the best one with room, in order. One warp; `left` are they
// and the padding, `missing` what experts lack to their lower bounds.
__device__ inline void give_places(const Block& b, int* place, int* keep, int left, int missing) {
  const Rows& rows = b.rows;
  const int lane = threadIdx.x;
  for (int base = 0; base < rows.tokens; base += 32) {
    const int t = base + lane;
    const bool free = t < rows.tokens && is_counted(rows, t) && __ldcg(&place[t]) < 0;
    for (unsigned some = __ballot_sync(kAll, free); some != 0; some &= some - 1) {
      const int token = base + __ffs(some) - 1;
      const int e = best_with_room(b, keep, token, missing >= left);
      missing -= keep[e] < b.lower[e];
      --left;
      __syncwarp();
      if (lane == 0) {
        ++keep[e];
        place[token] = e;
      }
      __syncwarp();
    }
  }
}

// Makes an assignment keep to its bounds, by force: what is too much goes where there is room.
// For the first block of a team, when the exact way did not end.
__device__ inline void force_bounds(Block& b) {
  int* place = b.work.place[b.place];
  int *keep = b.hard, *seen = b.soft;
  const Rows& rows = b.rows;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) keep[e] = seen[e] = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < rows.tokens; t += blockDim.x) {
    if (is_counted(rows, t)) atomicAdd(&keep[__ldcg(&place[t])], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) plan_eviction(b, keep, b.padding);
  __syncthreads();
  int kept = 0, missing = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    kept += keep[e];
    missing += max(0, b.lower[e] - keep[e]);
  }
  kept = block_sum(kept, b.int_scratch);
  missing = block_sum(missing, b.int_scratch);
  if (threadIdx.x < 32) {
    evict(b, place, keep, seen);
    give_places(b, place, keep, rows.tokens - kept, missing);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int padding = b.padding;
    for (int e = 0; e < b.experts; ++e) {
      const int part = min(padding, max(0, b.lower[e] - keep[e]));
      b.work.padding_at[e] = part;
      padding -= part;
    }
    for (int e = 0; e < b.experts; ++e) {
      const int part = min(padding, max(0, b.upper[e] - keep[e] - b.work.padding_at[e]));
      b.work.padding_at[e] += part;
      padding -= part;
    }
  }
  __threadfence();
  __syncthreads();
}

// Gives this block's padding tokens their experts: all padding in order, over experts in order.
__device__ inline void place_padding(Block& b, const Team& team) {
  int* ends = b.soft;
  int* place = b.work.place[b.place];
  int before = 0, sum = 0;
  for (int base = 0; base < team.size; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int total = 0;
    block_prefix(i < team.rank ? __ldcg(&b.work.block_padding[i]) : 0, b.int_scratch, total);
    before += total;
  }
  for (int base = 0; base < b.experts; base += blockDim.x) {
    const int e = base + threadIdx.x;
    const int count = e < b.experts ? __ldcg(&b.work.padding_at[e]) : 0;
    int total = 0;
    const int at = block_prefix(count, b.int_scratch, total);
    if (e < b.experts) ends[e] = sum + at + count;
    sum += total;
  }
  __syncthreads();
  for (int base = b.rows.first; base < b.rows.last; base += blockDim.x) {
    const int token = base + threadIdx.x;
    const bool padding = token < b.rows.last && !is_counted(b.rows, token);
    int total = 0;
    const int rank = before + block_prefix(padding ? 1 : 0, b.int_scratch, total);
    before += total;
    if (padding) {
      int low = 0, high = b.experts - 1;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (ends[middle] > rank) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      place[token] = low;
    }
  }
  __syncthreads();
}

// Each warp has a run of consecutive tokens: body(token or -1, expert).
template <typename Body>
__device__ inline void for_runs(const Block& b, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int tokens = b.rows.last - b.rows.first, run = (tokens + warps - 1) / warps;
  const int* place = b.work.place[b.place];
  const int end = min(tokens, (warp + 1) * run);
  for (int base = warp * run; base < end; base += 32) {
    const bool live = base + lane < end;
    const int token = b.rows.first + base + lane;
    body(live ? token : -1, live ? __ldcg(&place[token]) : -1);
  }
}

// Counts of experts in each warp's run become the counts before it; the block's go to the team.
__device__ inline void count_runs(Block& b, const Team& team, int* counts) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int i = threadIdx.x; i < warps * b.experts; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  int* mine = counts + threadIdx.x / 32 * b.experts;
  for_runs(b, [&](int, int expert) {
    const unsigned same = __match_any_sync(kAll, expert);
    if (expert >= 0 && lane == __ffs(same) - 1) mine[expert] += __popc(same);
    __syncwarp();
  });
  __syncthreads();
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    int sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      const int count = counts[warp * b.experts + e];
      counts[warp * b.experts + e] = sum;
      sum += count;
    }
    b.work.sort_counts[team.rank * b.experts + e] = sum;
  }
}

// Sums over blocks for this block's share of the experts; a warp each.
__device__ inline void sum_runs(Block& b, const Team& team, int* loads) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int e = team.rank * warps + threadIdx.x / 32; e < b.experts; e += team.size * warps) {
    int sum = 0;
    for (int base = 0; base < team.size; base += 32) {
      int* at = &b.work.sort_counts[(base + lane) * b.experts + e];
      const int count = base + lane < team.size ? __ldcg(at) : 0;
      int inclusive = count;
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kAll, inclusive, step);
        if (lane >= step) inclusive += other;
      }
      if (base + lane < team.size) *at = sum + inclusive - count;
      sum += __shfl_sync(kAll, inclusive, 31);
    }
    if (lane == 0) loads[e] = sum;
  }
}

__device__ inline void write_order(Block& b, const Team& team, int* counts, const int* loads) {
  const CudaAssignments& results = b.arguments->results;
  const int64_t offset = static_cast<int64_t>(b.problem) * b.rows.tokens;
  int* begin = b.soft;
  int before = 0;
  for (int base = 0; base < b.experts; base += blockDim.x) {
    const int e = base + threadIdx.x;
    int total = 0;
    const int at = block_prefix(e < b.experts ? __ldcg(&loads[e]) : 0, b.int_scratch, total);
    if (e < b.experts) {
      begin[e] = before + at + __ldcg(&b.work.sort_counts[team.rank * b.experts + e]);
    }
    before += total;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  int* mine = counts + threadIdx.x / 32 * b.experts;
  for_runs(b, [&](int token, int expert) {
    const unsigned same = __match_any_sync(kAll, expert);
    if (token >= 0) {
      const int at = begin[expert] + mine[expert] + __popc(same & ((1u << lane) - 1u));
      results.tokens_by_expert[offset + at] = token;
      results.place_of_token[offset + token] = at;
      results.expert_of_token[offset + token] = expert;
    }
    __syncwarp();
    if (token >= 0 && lane == __ffs(same) - 1) mine[expert] += __popc(same);
    __syncwarp();
  });
}

// The part of the gap that comes from loads and prices, in quanta: what padding and empty places
// cost beyond the least they could. `loads`: counted tokens at each expert.
__device__ inline double gap_of_loads(Block& b, const int* loads) {
  double low = 1e300, gap = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) low = fmin(low, b.price[e]);
  low = -block_max(-low, b.sum_scratch);
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    gap += (b.price[e] - low) * (b.upper[e] - loads[e]);
    int before = 0;
    for (int other = 0; other < b.experts && b.empty > 0; ++other) {
      const bool less = b.price[other] < b.price[e] || (b.price[other] == b.price[e] && other < e);
      if (less) before += b.upper[other] - b.lower[other];
    }
    gap -= (b.price[e] - low) * min(max(b.empty - before, 0), b.upper[e] - b.lower[e]);
  }
  return block_sum(gap, b.sum_scratch);
}

}  // namespace ballast::assignment::exact_cuda
