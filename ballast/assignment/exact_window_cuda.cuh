// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_anneal_cuda.cuh"

// Exact passes in integers (quanta), and the window: the tokens and experts that a repair may
// involve.
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
  __device__ static int bits(const Block&) { return 29; }
  __device__ static double highest_price() { return 1 << 30; }
  __device__ static Worth none() { return -2147483647 - 1; }
  __device__ static Worth price(const Block& b, int expert) {
    return expert < b.experts ? static_cast<int>(b.price[expert]) : 1 << 30;
  }
  __device__ static Worth worth(float score, float scale, Worth price) {
    return max(__float2int_rn(score * scale), -(1 << 30)) - price;
  }
  __device__ static float gap(Worth top, Worth second) {
    return static_cast<float>(static_cast<unsigned>(top) - static_cast<unsigned>(second));
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
  __device__ static int bits(const Block& b) { return b.forbid != 0 ? 40 : 46; }
  __device__ static double highest_price() { return 1125899906842624.0; }  // 2^50
  __device__ static Worth none() { return minus_infinity(); }
  __device__ static Worth price(const Block& b, int expert) {
    return expert < b.experts ? b.price[expert] : 0;
  }
  __device__ static Worth worth(float score, double scale, Worth price) {
    return fma(static_cast<double>(score), scale, kRounder) - (kRounder + price);
  }
  __device__ static float gap(Worth top, Worth second) { return static_cast<float>(top - second); }
  __device__ static bool near(Worth slack, float reach) {
    return slack <= static_cast<double>(reach);
  }
};

template <class N, class M>
__device__ inline void load_prices(const Block& b, typename N::Worth (&price)[M::kValues]) {
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    price[i] = N::price(b, M::expert(threadIdx.x % M::kLanes, i));
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
__device__ inline void value_token(const Block& b, int token, int lane, int was, bool violated,
                                   const float (&score)[M::kValues],
                                   const typename N::Worth (&worth)[M::kValues],
                                   typename N::Worth top, Tally& tally) {
  double raw = minus_infinity(), mine = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(lane, i);
    if (worth[i] >= top - 2 && expert < b.experts) {
      raw = fmax(raw, fma(static_cast<double>(score[i]), b.exact_scale, -b.price[expert]));
    }
    if (expert == was) mine = static_cast<double>(score[i]);
  }
  raw = lanes_max(raw, M::kLanes);
  if (token >= 0 && lane == M::lane_of(was)) {
    tally.violations += violated;
    tally.primal += mine;
    tally.norm += fabs(mine);
    tally.slack += raw - fma(mine, b.exact_scale, -b.price[was]);
  }
}

__device__ inline void add_tally(Block& b, const Team& team, const Sums& sums, Tally tally) {
  const int violations = block_sum(tally.violations, b.int_scratch);
  const double primal = block_sum(tally.primal, b.sum_scratch);
  const double slack = block_sum(tally.slack, b.sum_scratch);
  const double norm = block_sum(tally.norm, b.sum_scratch);
  if (threadIdx.x != 0) return;
  auto add = [&](Count what, double amount) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&sums.counts[what]),
              static_cast<unsigned long long>(llrint(fmin(amount, 1e16))));
  };
  add(kViolations, violations);
  add(kSlackSum, slack * 64);
  add(kNorm, norm * b.exact_scale / 1048576);
  b.work.parts[team.rank * kParts + kPartPrimal] = primal;
  b.work.parts[team.rank * kParts + kPartSlack] = slack;
}

// What a blind spread of this block's tokens is worth, as Certificate::blind has it.
template <class M>
__noinline__ __device__ void value_blindly(Block& b, const Team& team) {
  int share[M::kValues];
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(threadIdx.x % M::kLanes, i);
    share[i] = expert < b.experts ? b.upper[expert] : 0;
  }
  double sum = 0;
  for_rows<M>(b.rows, [&](int, int lane, const float(&score)[M::kValues]) {
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
  sum = block_sum(sum, b.sum_scratch);
  if (threadIdx.x == 0) b.work.parts[team.rank * kParts + kPartBlind] = sum;
}

// What this block counted, to what all of them count.
__device__ inline void add_counts(const Block& b, const Sums& sums) {
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    if (b.hard[e] != 0) atomicAdd(&sums.hard[e], b.hard[e]);
  }
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    if (b.bins[i] != 0) atomicAdd(&sums.bins[i], b.bins[i]);
  }
}

// One pass at b.price: every token keeps its expert where that is best, and else takes a best one.
// The new assignment is the other of work.place. Sums: loads, gaps, tokens that had to change.
template <class N, class M>
__noinline__ __device__ void exact_pass(Block& b, const Team& team, bool first) {
  using Worth = typename N::Worth;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.hard[e] = 0;
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) b.bins[i] = 0;
  Worth price[M::kValues];
  load_prices<N, M>(b, price);
  const int* old = b.work.place[b.place];
  int* place = b.work.place[1 - b.place];
  const double scale = b.exact_scale;
  float* gaps = b.work.gap;
  int *hard = b.hard, *bins = b.bins;
  Tally tally;
  __syncthreads();
  for_rows<M>(b.rows, [&](int token, int lane, const float(&score)[M::kValues]) {
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
      value_token<N, M>(b, token, lane, was, own != top, score, worth, top, tally);
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
  const Sums sums = sums_of(b.work, b.experts, b.turn);
  add_counts(b, sums);
  if (!first) add_tally(b, team, sums, tally);
}

// Which tokens a window holds, and how much of them.
struct Window {
  float reach;      // a token is in it if its gap is at most this, with all experts that near
  int members;      // tokens with such a gap
  int want;         // tokens that were asked for
  unsigned sample;  // of them, those with a hash up to this
  int salt;         // of the hash
  bool merge;       // tokens with equal lists share one
  bool shorten;     // lists of one token are cut to kShortList
};

// The least reach that gives `want` tokens, and at least `least`, and at most `most`.
__device__ inline Window plan_window(Block& b, const Sums& sums, int want, float least,
                                     float most) {
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int kEach = kBins / 32;
    const int lane = threadIdx.x;
    int mine[kEach], sum = 0;
    for (int i = 0; i < kEach; ++i) sum += mine[i] = __ldcg(&sums.bins[lane * kEach + i]);
    int before = sum;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAll, before, step);
      if (lane >= step) before += other;
    }
    before -= sum;
    int bin = kBins;
    for (int i = 0, count = before; i < kEach; ++i) {
      count += mine[i];
      if (count >= want && bin == kBins) bin = lane * kEach + i;
    }
    bin = min(min(max(lanes_min(bin, 32), bin_of(least)), bin_of(most)), kBins - 1);
    int members = 0;
    for (int i = 0; i < kEach; ++i) members += lane * kEach + i <= bin ? mine[i] : 0;
    members = lanes_sum(members, 32);
    if (lane == 0) {
      b.int_scratch[0] = members;
      b.float_scratch[0] = bin_end(bin);
    }
  }
  __syncthreads();
  Window window;
  window.reach = b.float_scratch[0];
  window.members = b.int_scratch[0];
  window.want = want;
  window.merge = window.members > want + want / 2 + 64;
  window.shorten = false;
  window.sample = kAll;
  __syncthreads();
  return window;
}

// Leaves part of a window out if it has too many different lists. Only where it is for moves at no
// cost: prices may rise only by what is near to nothing that was left out.
__device__ inline void thin_window(Window& window, int lists, int enough) {
  if (window.reach > 0 || lists <= 2 * enough) return;
  window.shorten = true;
  const double share = fmin(1.0, static_cast<double>(enough) / max(1, lists));
  window.sample = static_cast<unsigned>(4294967295.0 * share);
}

// This block's tokens in the window, in order; returns their number.
__device__ inline int list_entries(Block& b, const Window& window) {
  const Rows& rows = b.rows;
  int count = 0;
  for (int base = rows.first; base < rows.last; base += blockDim.x) {
    const int token = base + threadIdx.x;
    const bool in =
        token < rows.last && is_counted(rows, token) && b.work.gap[token] <= window.reach;
    int total = 0;
    const int at = block_prefix(in ? 1 : 0, b.int_scratch, total);
    if (in) b.work.entry_token[rows.first + count + at] = token;
    count += total;
  }
  __syncthreads();
  return count;
}

// Like for_rows, over the entries of this block: body(entry or -1, token, lane in row).
template <class M, typename Body>
__device__ inline void for_entries(const Block& b, int count, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int base = warp * M::kTogether; base < count; base += warps * M::kTogether) {
    const int at = base + lane / M::kLanes;
    const int entry = at < count ? b.rows.first + at : -1;
    body(entry, entry >= 0 ? b.work.entry_token[entry] : -1, lane % M::kLanes);
  }
}

// Which of one lane's experts are in a token's list, as bits; `slack` is what they lack.
template <class N, class M>
__device__ inline unsigned list_of(const Block& b, const Window& window, int token, int lane,
                                   const typename N::Worth (&price)[M::kValues],
                                   typename N::Worth (&slack)[M::kValues]) {
  float score[M::kValues];
  read_row<M>(b.rows, token, lane, score);
  typename N::Worth top = N::none();
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    slack[i] = N::worth(score[i], b.exact_scale, price[i]);
    top = max(top, slack[i]);
  }
  top = lanes_max(top, M::kLanes);
  unsigned in = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    slack[i] = top - slack[i];
    if (token >= 0 && M::expert(lane, i) < b.experts && N::near(slack[i], window.reach)) {
      in |= 1u << i;
    }
  }
  return in;
}

}  // namespace ballast::assignment::exact_cuda
