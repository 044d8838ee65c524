// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_pass_cuda.cuh"

// What callers get: tokens sorted by expert, loads, prices, and how good the result is.
namespace ballast::assignment::exact_cuda {

// How many tokens each expert keeps so that all bounds can be met, for loads that do not meet them.
// One thread; `keep` holds the loads, `free` the tokens without an expert.
__device__ inline void plan_eviction(const Problem& p, int* keep, int free) {
  int missing = 0;
  for (int e = 0; e < p.experts; ++e) {
    if (keep[e] > p.upper[e]) {
      free += keep[e] - p.upper[e];
      keep[e] = p.upper[e];
    }
    missing += max(0, p.lower[e] - keep[e]);
  }
  for (int e = 0; e < p.experts && missing > free; ++e) {
    const int more = min(max(0, keep[e] - p.lower[e]), missing - free);
    keep[e] -= more;
    free += more;
  }
}

// Takes tokens from experts that have more than they keep, the last ones in order. One warp.
__device__ inline void evict(const Problem& p, int* place, const int* keep, int* seen) {
  const Rows& rows = p.rows;
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
__device__ inline int best_with_room(const Problem& p, const int* keep, int token, bool required) {
  double best = minus_infinity();
  int at = p.experts;  // a forbidden pair is better than none
  for (int e = threadIdx.x; e < p.experts; e += 32) {
    if (keep[e] >= (required ? p.lower[e] : p.upper[e])) continue;
    const double score = mended(p.rows, raw_score(p.rows, token, e));
    const double profit = score * p.exact_scale - p.price[e];
    if (at == p.experts || profit > best) {
      best = profit;
      at = e;
    }
  }
  const double top = lanes_max(at < p.experts ? best : minus_infinity(), 32);
  const int found = lanes_min(at < p.experts && best == top ? at : p.experts, 32);
  return found < p.experts ? found : min(lanes_min(at, 32), p.experts - 1);
}

// Gives tokens without an expert to the best one with room, in order. One warp; `left` are they
// and the padding, `missing` what experts lack to their lower bounds.
__device__ inline void give_places(const Problem& p, int* place, int* keep, int left, int missing) {
  const Rows& rows = p.rows;
  const int lane = threadIdx.x;
  for (int base = 0; base < rows.tokens; base += 32) {
    const int t = base + lane;
    const bool free = t < rows.tokens && is_counted(rows, t) && __ldcg(&place[t]) < 0;
    for (unsigned some = __ballot_sync(kAll, free); some != 0; some &= some - 1) {
      const int token = base + __ffs(some) - 1;
      const int e = best_with_room(p, keep, token, missing >= left);
      missing -= keep[e] < p.lower[e];
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
__device__ inline void force_bounds(Problem& p, const Solution& solution, const Output& output) {
  int* place = solution.now();
  int *keep = p.hard, *seen = output.begin;
  const Rows& rows = p.rows;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) keep[e] = seen[e] = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < rows.tokens; t += blockDim.x) {
    if (is_counted(rows, t)) atomicAdd(&keep[__ldcg(&place[t])], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) plan_eviction(p, keep, p.padding);
  __syncthreads();
  int kept = 0, missing = 0;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    kept += keep[e];
    missing += max(0, p.lower[e] - keep[e]);
  }
  kept = block_sum(kept, p.scratch.ints);
  missing = block_sum(missing, p.scratch.ints);
  if (threadIdx.x < 32) {
    evict(p, place, keep, seen);
    give_places(p, place, keep, rows.tokens - kept, missing);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int padding = p.padding;
    for (int e = 0; e < p.experts; ++e) {
      const int part = min(padding, max(0, p.lower[e] - keep[e]));
      solution.padding_at[e] = part;
      padding -= part;
    }
    for (int e = 0; e < p.experts; ++e) {
      const int part = min(padding, max(0, p.upper[e] - keep[e] - solution.padding_at[e]));
      solution.padding_at[e] += part;
      padding -= part;
    }
  }
  __threadfence();
  __syncthreads();
}

// Gives this block's padding tokens their experts: all padding in order, over experts in order.
__device__ inline void place_padding(Problem& p, const Scan& scan, const Solution& solution,
                                     const Output& output, const Team& team) {
  int* ends = output.begin;
  int* place = solution.now();
  int before = 0, sum = 0;
  for (int base = 0; base < team.size; base += blockDim.x) {
    const int i = base + threadIdx.x;
    int total = 0;
    block_prefix(i < team.rank ? __ldcg(&scan.block_padding[i]) : 0, p.scratch.ints, total);
    before += total;
  }
  for (int base = 0; base < p.experts; base += blockDim.x) {
    const int e = base + threadIdx.x;
    const int count = e < p.experts ? __ldcg(&solution.padding_at[e]) : 0;
    int total = 0;
    const int at = block_prefix(count, p.scratch.ints, total);
    if (e < p.experts) ends[e] = sum + at + count;
    sum += total;
  }
  __syncthreads();
  for (int base = p.rows.first; base < p.rows.last; base += blockDim.x) {
    const int token = base + threadIdx.x;
    const bool padding = token < p.rows.last && !is_counted(p.rows, token);
    int total = 0;
    const int rank = before + block_prefix(padding ? 1 : 0, p.scratch.ints, total);
    before += total;
    if (padding) {
      int low = 0, high = p.experts - 1;
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
__device__ inline void for_runs(const Problem& p, const Solution& solution, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int tokens = p.rows.last - p.rows.first, run = (tokens + warps - 1) / warps;
  const int* place = solution.now();
  const int end = min(tokens, (warp + 1) * run);
  for (int base = warp * run; base < end; base += 32) {
    const bool live = base + lane < end;
    const int token = p.rows.first + base + lane;
    body(live ? token : -1, live ? __ldcg(&place[token]) : -1);
  }
}

// Counts of experts in each warp's run become the counts before it; the block's go to the team.
__device__ inline void count_runs(Problem& p, const Solution& solution, const Output& output,
                                  const Team& team, int* counts) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int i = threadIdx.x; i < warps * p.experts; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  int* mine = counts + threadIdx.x / 32 * p.experts;
  for_runs(p, solution, [&](int, int expert) {
    const unsigned same = __match_any_sync(kAll, expert);
    if (expert >= 0 && lane == __ffs(same) - 1) mine[expert] += __popc(same);
    __syncwarp();
  });
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    int sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      const int count = counts[warp * p.experts + e];
      counts[warp * p.experts + e] = sum;
      sum += count;
    }
    output.sort_counts[team.rank * p.experts + e] = sum;
  }
}

// Sums over blocks for this block's share of the experts; a warp each.
__device__ inline void sum_runs(Problem& p, const Output& output, const Team& team, int* loads) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int e = team.rank * warps + threadIdx.x / 32; e < p.experts; e += team.size * warps) {
    int sum = 0;
    for (int base = 0; base < team.size; base += 32) {
      int* at = &output.sort_counts[(base + lane) * p.experts + e];
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

__device__ inline void write_order(Problem& p, const Solution& solution, const Output& output,
                                   const Team& team, int* counts, const int* loads) {
  const CudaAssignments& results = p.arguments->results;
  const int64_t offset = static_cast<int64_t>(p.number) * p.rows.tokens;
  int* begin = output.begin;
  int before = 0;
  for (int base = 0; base < p.experts; base += blockDim.x) {
    const int e = base + threadIdx.x;
    int total = 0;
    const int at = block_prefix(e < p.experts ? __ldcg(&loads[e]) : 0, p.scratch.ints, total);
    if (e < p.experts) {
      begin[e] = before + at + __ldcg(&output.sort_counts[team.rank * p.experts + e]);
    }
    before += total;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  int* mine = counts + threadIdx.x / 32 * p.experts;
  for_runs(p, solution, [&](int token, int expert) {
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
__device__ inline double gap_of_loads(Problem& p, const int* loads) {
  double low = 1e300, gap = 0;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) low = fmin(low, p.price[e]);
  low = -block_max(-low, p.scratch.sums);
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    gap += (p.price[e] - low) * (p.upper[e] - loads[e]);
    int before = 0;
    for (int other = 0; other < p.experts && p.empty > 0; ++other) {
      const bool less = p.price[other] < p.price[e] || (p.price[other] == p.price[e] && other < e);
      if (less) before += p.upper[other] - p.lower[other];
    }
    gap -= (p.price[e] - low) * min(max(p.empty - before, 0), p.upper[e] - p.lower[e]);
  }
  return block_sum(gap, p.scratch.sums);
}

__device__ inline void write_status(Problem& p, const Scan& scan, const Solution& solution,
                                    const Team& team, bool solved, const int* loads) {
  const CudaAssignments& results = p.arguments->results;
  const double unit = 1 / (p.exact_scale * p.rows.lift);
  bool bad = false;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    const int load = __ldcg(&loads[e]);
    bad = bad || load < p.lower[e] || load > p.upper[e];
    p.hard[e] = load - __ldcg(&solution.padding_at[e]);
    results.prices[static_cast<int64_t>(p.number) * p.experts + e] = p.price[e] * unit;
  }
  bad = __syncthreads_or(bad) != 0;
  const double primal = sum_parts(p, solution, team, kPartPrimal) / p.rows.lift;
  const double slack = (sum_parts(p, solution, team, kPartSlack) + gap_of_loads(p, p.hard)) * unit;
  const double blind = sum_parts(p, solution, team, kPartBlind) / p.rows.lift;
  if (threadIdx.x != 0) return;
  const Head& head = *scan.head;
  AssignmentStatus status;
  status.code = solved ? AssignmentStatus::kOk : AssignmentStatus::kNotConverged;
  if (p.infeasible != 0) status.code = AssignmentStatus::kInfeasible;
  const NonFinite rule = p.arguments->problems.non_finite;
  if (head.first_bad != 0 && rule != NonFinite::kLowest) {
    status.code = AssignmentStatus::kNonFinite;
    status.token = static_cast<int>(~head.first_bad / p.experts);
    status.expert = static_cast<int>(~head.first_bad % p.experts);
  }
  status.valid = !bad && p.infeasible == 0 && isfinite(primal);  // -inf: a forbidden pair
  status.replaced = rule == NonFinite::kLowest ? static_cast<int64_t>(head.replaced) : 0;
  status.primal = primal;
  status.gap = slack;
  status.dual = primal + slack;
  status.blind = blind;
  results.status[p.number] = status;
}

}  // namespace ballast::assignment::exact_cuda
