// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_anneal_cuda.cuh"

// Exact passes in integers, and the window: the tokens and experts that a repair may involve.
// Prices and scores are integers (quanta) held in doubles, so that their differences are exact.
namespace ballast::exact_cuda {

constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
constexpr int kShortList = 16;                   // experts in a token's list, where shortened

enum Count { kViolations, kLists };
enum Part { kPartPrimal, kPartSlack };

// A token's worth (score - price) of one lane's experts, in quanta.
template <int C>
struct Worths {
  double value[C];

  __device__ void set(const Rows& rows, const float (&score)[C], const double (&price)[C],
                      double scale) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
      value[i] = fma(static_cast<double>(score[i]), scale, kRounder) - (kRounder + price[i]);
    }
  }
  __device__ double at(int index) const {
    double found = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) found = i == index ? value[i] : found;
    return found;
  }
};

template <int C>
__device__ inline void load_prices(const Block& b, double (&price)[C]) {
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int expert = threadIdx.x % b.rows.lanes + i * b.rows.lanes;
    price[i] = expert < b.experts ? b.price[expert] : 0;
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

// One pass at b.price: every token keeps its expert where that is best, and else takes a best one.
// The new assignment is the other of work.place. Sums: loads, gaps, tokens that had to change.
template <int C>
__device__ void exact_pass(Block& b, const Team& team, bool first) {
  const Rows& rows = b.rows;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.hard[e] = 0;
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) b.bins[i] = 0;
  double price[C];
  load_prices<C>(b, price);
  const int* old = b.work.place[b.place];
  int* place = b.work.place[1 - b.place];
  const double scale = b.exact_scale;
  double primal = 0, slack = 0;
  int violations = 0;
  __syncthreads();
  for_rows(rows, [&](int token, int lane) {
    float score[C];
    read_row<C>(rows, token, lane, score);
    Worths<C> worth;
    worth.set(rows, score, price, scale);
    double best = minus_infinity(), raw = minus_infinity();
    int at = 0, ties = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (!first) raw = fmax(raw, fma(static_cast<double>(score[i]), scale, -price[i]));
      if (worth.value[i] > best) {
        best = worth.value[i];
        at = i;
        ties = 1;
      } else if (worth.value[i] == best && ties > 0) {
        if (mix(token, i + 77) % ++ties == 0) at = i;
      }
    }
    const double top = lanes_max(best, rows.lanes);
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask(rows);
    int expert = __shfl_sync(kAll, lane + at * rows.lanes, chosen_lane(tied, token, 0));
    if (!first) {
      const int was = token >= 0 ? __ldcg(&old[token]) : 0;
      const int from = threadIdx.x % 32 / rows.lanes * rows.lanes + was % rows.lanes;
      const double own = __shfl_sync(kAll, worth.at(was / rows.lanes), from);
      raw = lanes_max(raw, rows.lanes);
      if (own == top) expert = was;
      if (token >= 0 && lane == was % rows.lanes) {
        double mine = 0;
#pragma unroll
        for (int i = 0; i < C; ++i) {
          if (i == was / rows.lanes) mine = static_cast<double>(score[i]);
        }
        violations += own != top;
        primal += mine;
        slack += raw - fma(mine, scale, -b.price[was]);
      }
    }
    double second = minus_infinity();
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (lane + i * rows.lanes != expert) second = fmax(second, worth.value[i]);
    }
    second = lanes_max(second, rows.lanes);
    if (token >= 0 && lane == 0) {
      const auto gap = static_cast<float>(top - second);
      place[token] = expert;
      b.work.gap[token] = gap;
      atomicAdd(&b.hard[expert], 1);
      atomicAdd(&b.bins[bin_of(gap)], 1);
    }
  });
  __syncthreads();
  const Sums sums = sums_of(b.work, b.experts, b.turn);
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    if (b.hard[e] != 0) atomicAdd(&sums.hard[e], b.hard[e]);
  }
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    if (b.bins[i] != 0) atomicAdd(&sums.bins[i], b.bins[i]);
  }
  if (first) return;
  violations = block_sum(violations, b.int_scratch);
  primal = block_sum(primal, b.sum_scratch);
  slack = block_sum(slack, b.sum_scratch);
  if (threadIdx.x == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&sums.counts[kViolations]),
              static_cast<unsigned long long>(violations));
    b.work.parts[team.rank * kParts + kPartPrimal] = primal;
    b.work.parts[team.rank * kParts + kPartSlack] = slack;
  }
}

// Which tokens a window holds, and how much of them.
struct Window {
  float reach;      // a token is in it if its gap is at most this, with all experts that near
  int members;      // tokens with such a gap
  int want;         // tokens that were asked for
  unsigned sample;  // of them, those with a hash up to this
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
__device__ inline void thin_window(Window& window, int lists, bool allowed) {
  if (!allowed || window.reach > 0 || lists <= 2 * window.want + 512) return;
  window.shorten = true;
  window.sample = static_cast<unsigned>(4294967295.0 * (2.0 * window.want / lists));
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
template <typename Body>
__device__ inline void for_entries(const Block& b, int count, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int together = 32 / b.rows.lanes;
  for (int base = warp * together; base < count; base += warps * together) {
    const int at = base + lane / b.rows.lanes;
    const int entry = at < count ? b.rows.first + at : -1;
    body(entry, entry >= 0 ? b.work.entry_token[entry] : -1, lane % b.rows.lanes);
  }
}

// Which of one lane's experts are in a token's list, as bits; `worth` becomes slacks.
template <int C>
__device__ inline unsigned list_of(const Block& b, const Window& window, int token, int lane,
                                   const double (&price)[C], Worths<C>& worth) {
  float score[C];
  read_row<C>(b.rows, token, lane, score);
  worth.set(b.rows, score, price, b.exact_scale);
  double top = minus_infinity();
#pragma unroll
  for (int i = 0; i < C; ++i) top = fmax(top, worth.value[i]);
  top = lanes_max(top, b.rows.lanes);
  unsigned in = 0;
#pragma unroll
  for (int i = 0; i < C; ++i) {
    worth.value[i] = top - worth.value[i];
    const bool near = worth.value[i] <= static_cast<double>(window.reach);
    if (token >= 0 && lane + i * b.rows.lanes < b.experts && near) in |= 1u << i;
  }
  return in;
}

}  // namespace ballast::exact_cuda
