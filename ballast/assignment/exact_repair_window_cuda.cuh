// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_pass_cuda.cuh"

// The window: the tokens and experts that a repair may involve.
namespace ballast::assignment::exact_cuda {

// Which tokens a window holds, and how much of them.
struct Window {
  float reach;      // a token is in it if its gap is at most this, with all experts that near
  int members;      // tokens with such a gap
  unsigned sample;  // of them, those with a hash up to this
  int salt;         // of the hash
  bool merge;       // tokens with equal lists share one
  bool shorten;     // lists of one token are cut to kShortList
};

// The least reach that gives `want` tokens, and at least `least`, and at most `most`.
__device__ inline Window plan_window(Problem& p, const Sums& sums, int want, float least,
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
      p.scratch.ints[0] = members;
      p.scratch.floats[0] = bin_end(bin);
    }
  }
  __syncthreads();
  Window window;
  window.reach = p.scratch.floats[0];
  window.members = p.scratch.ints[0];
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
__device__ inline int list_entries(Problem& p, const Repair& repair, const Window& window) {
  const Rows& rows = p.rows;
  int count = 0;
  for (int base = rows.first; base < rows.last; base += blockDim.x) {
    const int token = base + threadIdx.x;
    const bool in =
        token < rows.last && is_counted(rows, token) && repair.gap[token] <= window.reach;
    int total = 0;
    const int at = block_prefix(in ? 1 : 0, p.scratch.ints, total);
    if (in) repair.entries.token[rows.first + count + at] = token;
    count += total;
  }
  __syncthreads();
  return count;
}

// Like for_rows, over the entries of this block: body(entry or -1, token, lane in row).
template <class M, typename Body>
__device__ inline void for_entries(const Problem& p, const Repair& repair, int count, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int base = warp * M::kTogether; base < count; base += warps * M::kTogether) {
    const int at = base + lane / M::kLanes;
    const int entry = at < count ? p.rows.first + at : -1;
    body(entry, entry >= 0 ? repair.entries.token[entry] : -1, lane % M::kLanes);
  }
}

// Which of one lane's experts are in a token's list, as bits; `slack` is what they lack.
template <class N, class M>
__device__ inline unsigned list_of(const Problem& p, const Window& window, int token, int lane,
                                   const typename N::Worth (&price)[M::kValues],
                                   typename N::Worth (&slack)[M::kValues]) {
  float score[M::kValues];
  read_row<M>(p.rows, token, lane, score);
  typename N::Worth top = N::none();
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    slack[i] = N::worth(score[i], p.exact_scale, price[i]);
    top = max(top, slack[i]);
  }
  top = lanes_max(top, M::kLanes);
  unsigned in = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    slack[i] = N::lack(top, slack[i]);
    if (token >= 0 && M::expert(lane, i) < p.experts && N::near(slack[i], window.reach)) {
      in |= 1u << i;
    }
  }
  return in;
}

}  // namespace ballast::assignment::exact_cuda
