// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_passes_cuda.cuh"
#include "ballast/assignment/exact_scan_rows_cuda.cuh"

// Exact passes in integers (quanta): where each token is best off, and what that is worth.
namespace ballast::assignment::exact_cuda {

constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
constexpr int kShortList = 6;                    // experts in a token's list, where shortened

enum Count { kViolations, kLists, kSlackSum, kNorm };
enum Part { kPartPrimal, kPartSlack, kPartBlind };

// Quanta in 32 bits: scores below 2^29 and prices up to 2^30, so that differences fit.
struct Narrow {
  using Worth = int;
  using Cost = int;
  static constexpr Cost kFar = 1 << 30;
  static constexpr float kCeiling = 1 << 27;  // of windows
  __device__ static int bits(const Problem&) { return 29; }
  __device__ static double highest_price() { return 1 << 30; }
  __device__ static Worth none() { return -2147483647 - 1; }
  __device__ static Worth price(const Problem& p, int expert) {
    return expert < p.experts ? static_cast<int>(p.price[expert]) : 1 << 30;
  }
  __device__ static Worth worth(float score, float scale, Worth price) {
    return max(__float2int_rn(score * scale), -(1 << 30)) - price;
  }
  // What a worth lacks to the top, in all 32 bits: between a high and a forbidden one is more than
  // an int holds.
  __device__ static Worth lack(Worth top, Worth worth) {
    return static_cast<Worth>(static_cast<unsigned>(top) - static_cast<unsigned>(worth));
  }
  __device__ static float gap(Worth top, Worth second) {
    return static_cast<float>(static_cast<unsigned>(lack(top, second)));
  }
  __device__ static bool near(Worth slack, float reach) {
    return static_cast<float>(static_cast<unsigned>(slack)) <= reach;
  }
};

// Integers held in doubles, and in 64 bits: for scores whose range is too wide for the above, and
// where pairs are forbidden (-inf).
struct Wide {
  using Worth = double;
  using Cost = long long;
  static constexpr Cost kFar = 1ll << 61;
  static constexpr float kCeiling = 3e38f;
  __device__ static int bits(const Problem& p) { return p.forbid != 0 ? 40 : 46; }
  __device__ static double highest_price() { return 1125899906842624.0; }  // 2^50
  __device__ static Worth none() { return minus_infinity(); }
  __device__ static Worth price(const Problem& p, int expert) {
    return expert < p.experts ? p.price[expert] : 0;
  }
  __device__ static Worth worth(float score, double scale, Worth price) {
    return fma(static_cast<double>(score), scale, kRounder) - (kRounder + price);
  }
  __device__ static Worth lack(Worth top, Worth worth) { return top - worth; }
  __device__ static float gap(Worth top, Worth second) {
    return static_cast<float>(lack(top, second));
  }
  __device__ static bool near(Worth slack, float reach) {
    return slack <= static_cast<double>(reach);
  }
};

template <class N, class M>
__device__ inline void load_prices(const Problem& p, typename N::Worth (&price)[M::kValues]) {
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    price[i] = N::price(p, M::expert(threadIdx.x % M::kLanes, i));
  }
}

__device__ inline int bin_of(float gap) {
  if (!(gap > 0)) return 0;
  const int code = static_cast<int>(__float_as_uint(gap) >> 21) - (127 << 2) + 1;
  return min(max(code, 1), kBins - 1);
}

__device__ inline float bin_end(int bin) {
  if (bin == 0) return 0;
  return __uint_as_float((static_cast<unsigned>(bin - 1 + (127 << 2) + 1) << 21) - 1u);
}

// What a block adds up in an exact pass.
struct Tally {
  double primal = 0, slack = 0, norm = 0;  // scores as read; slack in quanta
  int violations = 0;
};

// What the scores themselves, not rounded, say about a token at expert `was`; for the lane that
// has it.
template <class N, class M>
__device__ inline void value_token(const Problem& p, int token, int lane, int was, bool violated,
                                   const float (&score)[M::kValues],
                                   const typename N::Worth (&worth)[M::kValues],
                                   typename N::Worth top, Tally& tally) {
  double raw = minus_infinity(), mine = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(lane, i);
    if (worth[i] >= top - 2 && expert < p.experts) {
      raw = fmax(raw, fma(static_cast<double>(score[i]), p.exact_scale, -p.price[expert]));
    }
    if (expert == was) mine = static_cast<double>(score[i]);
  }
  raw = lanes_max(raw, M::kLanes);
  if (token >= 0 && lane == M::lane_of(was)) {
    tally.violations += violated;
    tally.primal += mine;
    tally.norm += fabs(mine);
    tally.slack += raw - fma(mine, p.exact_scale, -p.price[was]);
  }
}

__device__ inline void add_tally(Problem& p, const Solution& solution, const Team& team,
                                 const Sums& sums, Tally tally) {
  const int violations = block_sum(tally.violations, p.scratch.ints);
  const double primal = block_sum(tally.primal, p.scratch.sums);
  const double slack = block_sum(tally.slack, p.scratch.sums);
  const double norm = block_sum(tally.norm, p.scratch.sums);
  if (threadIdx.x != 0) return;
  auto add = [&](Count what, double amount) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&sums.counts[what]),
              static_cast<unsigned long long>(llrint(fmin(amount, 1e16))));
  };
  add(kViolations, violations);
  add(kSlackSum, slack * 64);
  add(kNorm, norm * p.exact_scale / 1048576);
  solution.parts[team.rank * kParts + kPartPrimal] = primal;
  solution.parts[team.rank * kParts + kPartSlack] = slack;
}

// What a blind spread of this block's tokens is worth, as Certificate::blind has it.
template <class M>
__noinline__ __device__ void value_blindly(Problem& p, const Solution& solution, const Team& team) {
  int share[M::kValues];
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(threadIdx.x % M::kLanes, i);
    share[i] = expert < p.experts ? p.upper[expert] : 0;
  }
  double sum = 0;
  for_rows<M>(p.rows, [&](int, int lane, const float(&score)[M::kValues]) {
    double weighted = 0, weights = 0;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      if (score[i] == minus_infinity()) continue;
      weighted = fma(static_cast<double>(score[i]), static_cast<double>(share[i]), weighted);
      weights += share[i];
    }
    weighted = lanes_sum(weighted, M::kLanes);
    weights = lanes_sum(weights, M::kLanes);
    if (lane == 0 && weights > 0) sum += weighted / weights;
  });
  sum = block_sum(sum, p.scratch.sums);
  if (threadIdx.x == 0) solution.parts[team.rank * kParts + kPartBlind] = sum;
}

// What this block counted, to what all of them count.
__device__ inline void add_counts(const Problem& p, const Repair& repair, const Sums& sums) {
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    if (p.hard[e] != 0) atomicAdd(&sums.hard[e], p.hard[e]);
  }
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    if (repair.bins[i] != 0) atomicAdd(&sums.bins[i], repair.bins[i]);
  }
}

// One pass at p.price: every token keeps its expert where that is best, and else takes a best one.
// The new assignment is solution.next(). Sums: loads, gaps, tokens that had to change.
template <class N, class M>
__noinline__ __device__ void exact_pass(Problem& p, Repair& repair, const Solution& solution,
                                        const Team& team, bool first) {
  using Worth = typename N::Worth;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.hard[e] = 0;
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) repair.bins[i] = 0;
  Worth price[M::kValues];
  load_prices<N, M>(p, price);
  int *const old = solution.now(), *const place = solution.next();
  const double scale = p.exact_scale;
  float* gaps = repair.gap;
  int *const hard = p.hard, *const bins = repair.bins;
  Tally tally;
  __syncthreads();
  for_rows<M>(p.rows, [&](int token, int lane, const float(&score)[M::kValues]) {
    const int was = !first && token >= 0 ? __ldcg(&old[token]) : 0;
    Worth worth[M::kValues], best = N::none(), second = N::none(), own = N::none();
    int at = 0, ties = 0;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      const Worth w = worth[i] = N::worth(score[i], scale, price[i]);
      second = max(second, min(best, w));
      if (M::expert(lane, i) == was) own = w;
      if (w > best) {
        best = w;
        at = i;
        ties = 1;
      } else if (w == best && ties > 0) {
        if (mix(token, i + 77) % ++ties == 0) at = i;
      }
    }
    Worth top = best;
#pragma unroll
    for (int step = M::kLanes / 2; step > 0; step /= 2) {
      const Worth other = __shfl_xor_sync(kAll, top, step);
      const Worth next = __shfl_xor_sync(kAll, second, step);
      second = max(max(second, next), min(top, other));
      top = max(top, other);
    }
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask<M>();
    int expert = __shfl_sync(kAll, M::expert(lane, at), chosen_lane(tied, token));
    if (!first) {
      const int from = threadIdx.x % 32 / M::kLanes * M::kLanes + M::lane_of(was);
      own = __shfl_sync(kAll, own, from);
      if (own == top) expert = was;
      value_token<N, M>(p, token, lane, was, own != top, score, worth, top, tally);
    }
    if (token >= 0 && lane == 0) {
      const float gap = N::gap(top, second);
      place[token] = expert;
      gaps[token] = gap;
      atomicAdd(&hard[expert], 1);
      atomicAdd(&bins[bin_of(gap)], 1);
    }
  });
  __syncthreads();
  const Sums sums = p.passes.now(p.experts);
  add_counts(p, repair, sums);
  if (!first) add_tally(p, solution, team, sums, tally);
}

// Sum over blocks of what they left in solution.parts, in their order.
__device__ inline double sum_parts(Problem& p, const Solution& solution, const Team& team,
                                   int part) {
  double sum = 0;
  for (int i = threadIdx.x; i < team.size; i += blockDim.x) {
    sum += __ldcg(&solution.parts[i * kParts + part]);
  }
  return block_sum(sum, p.scratch.sums);
}

}  // namespace ballast::assignment::exact_cuda
