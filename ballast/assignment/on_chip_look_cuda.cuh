// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_team_cuda.cuh"

// The first look at the scores: how large they are, how far they spread, and where prices may
// begin.
namespace ballast::assignment::on_chip {

// What a thread has seen of its columns, as differences from `pivot`, so that sums stay small.
struct Seen {
  // Squares are of what is left without the row's own mean: a constant that all scores of a token
  // have in common says nothing about how far they spread.
  float sum[kValues] = {}, square[kValues] = {};
  float largest = 0;
  bool finite = true;
};

template <int kExperts, Meeting kMeeting>
__device__ void look_at_rows(const Chip<kExperts, kMeeting>& c, const float* pivot, Seen& seen) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    const int row = base + threadIdx.x / kLanes;
    float value[kValues];
    read_row(c, row, value);
    float total = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int e = expert_at<kExperts>(threadIdx.x % kLanes, i);
      if (e >= c.experts || row >= c.count) continue;
      seen.finite = seen.finite && isfinite(value[i]);
      seen.largest = fmaxf(seen.largest, fabsf(value[i]));
      value[i] -= pivot[e];
      seen.sum[i] += value[i];
      total += value[i];
    }
    const float mean = lanes_sum(total, kLanes) / static_cast<float>(c.experts);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int e = expert_at<kExperts>(threadIdx.x % kLanes, i);
      if (e >= c.experts || row >= c.count) continue;
      const float x = value[i] - mean;
      seen.square[i] = fmaf(x, x, seen.square[i]);
    }
  }
}

// Squares take the arena: [kWarps, E] of this block, then, of a cluster, [blocks, E] of all.
template <int kExperts, Meeting kMeeting>
__device__ inline float* squares_of_warps(Chip<kExperts, kMeeting>& c) {
  return reinterpret_cast<float*>(c.arena());
}
template <int kExperts, Meeting kMeeting>
__device__ inline float* squares_of_blocks(Chip<kExperts, kMeeting>& c) {
  return c.at_desk() ? c.desk->squares[0] : squares_of_warps(c) + kWarps * kExperts;
}
template <int kExperts, Meeting kMeeting>
__device__ inline float* squares_for(Chip<kExperts, kMeeting>& c, int copy) {
  float* here = squares_of_blocks(c);
  return c.at_desk() ? here : cooperative_groups::this_cluster().map_shared_rank(here, copy);
}

// Tells all blocks what this one has seen: sums and squares, and as values the largest score and
// whether one is not finite. The first turn's notes.
template <int kExperts, Meeting kMeeting>
__device__ void share_seen(Chip<kExperts, kMeeting>& c, Seen& seen) {
  float* squares = squares_of_warps(c);
  leave_columns(c, seen.square);
  __syncthreads();
  for (int i = threadIdx.x; i < kWarps * kExperts; i += kThreads)
    squares[i] = c.warp_sums[i / kExperts][i % kExperts];
  __syncthreads();
  leave_columns(c, seen.sum);
  float largest = lanes_max(seen.largest, 32);
  if (threadIdx.x % 32 == 0) c.warp_most[threadIdx.x / 32] = largest;
  const bool finite = __syncthreads_and(seen.finite) != 0;
  const int e = threadIdx.x % kExperts;
  const float sum = sum_of_warps(c, e);
  float square = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    square += squares[warp * kExperts + e];
    largest = fmaxf(largest, c.warp_most[warp]);
  }
#pragma unroll 1
  for (int copy = threadIdx.x / kExperts; copy < copies(c); copy += Layout<kExperts>::kSplit) {
    Note<kExperts>& note = note_for(c, copy, 0);
    note.load[e] = sum;
    squares_for(c, copy)[c.rank * kExperts + e] = square;
    if (e == 0) {
      note.value[0] = largest;
      note.value[1] = finite ? 0 : 1;
      note.value[2] = 0;
    }
  }
  meet(c);
}

// Prices above which 1/E of each expert's scores would lie if they were normal, in c.cold_price.
// Leaves variances in c.product.
template <int kExperts, Meeting kMeeting>
__device__ void start_prices(Chip<kExperts, kMeeting>& c, const float* pivot, float quantile) {
  const float inverse = 1.0f / static_cast<float>(c.tokens);
  sum_blocks<float>(
      c, [&](int block, int e) { return note_of(c, block, 0).load[e]; },
      [&](int e, float sum) { c.load[e] = e < c.experts ? sum * inverse : 0; });
  __syncthreads();
  const float* squares = squares_of_blocks(c);
  sum_blocks<float>(
      c, [&](int block, int e) { return squares[block * kExperts + e]; },
      [&](int e, float sum) { c.product[e] = sum * inverse; });
  __syncthreads();
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x;
    float all = 0;  // of the rows' means
#pragma unroll 1
    for (int other = threadIdx.x % 32; other < c.experts; other += 32) all += c.load[other];
    all = lanes_sum(all, 32);
    const float mean = c.load[e], off = mean - all / static_cast<float>(c.experts);
    const float variance = e < c.experts ? fmaxf(c.product[e] - off * off, 0) : 0;
    c.product[e] = variance;
    c.cold_price[e] = (e < c.experts ? mean + pivot[e] : 0) + quantile * sqrtf(variance);
  }
  __syncthreads();
}

// What this block's scores are like, for all others, in the notes of this turn.
template <int kExperts, Meeting kMeeting>
__device__ inline void tell_seen(Chip<kExperts, kMeeting>& c) {
  if (static_cast<int>(threadIdx.x) >= copies(c)) return;
  Note<kExperts>& note = note_for(c, threadIdx.x, c.turn);
  note.value[0] = c.own_largest;
  note.value[1] = c.own_refused;
  note.value[2] = c.own_squares;
}

// What all blocks told in the notes of `turn`, in c.largest and c.squares. False: a score is not
// finite.
template <int kExperts, Meeting kMeeting>
__device__ bool hear_seen(Chip<kExperts, kMeeting>& c, int turn) {
  if (threadIdx.x < 32) {
    float largest = 0, squares = 0;
    bool refused = false;
#pragma unroll 1
    for (int block = threadIdx.x; block < c.blocks; block += 32) {
      const double* told = note_of(c, block, turn).value;
      largest = fmaxf(largest, static_cast<float>(told[0]));
      refused = refused || told[1] != 0;
      squares += static_cast<float>(told[2]);
    }
    largest = lanes_max(largest, 32);
    squares = lanes_sum(squares, 32);
    refused = __any_sync(kAll, refused) != 0;
    if (threadIdx.x == 0) {
      c.squares = squares;
      c.largest = largest;
      c.flag = refused ? 0 : 1;
    }
  }
  __syncthreads();
  const bool finite = c.flag != 0;
  __syncthreads();
  return finite;
}

// Sets c.cold_price, c.deviation and c.largest. False: a score is not finite. `pivot`: the first
// token's scores.
template <int kExperts, Meeting kMeeting>
__device__ bool first_look(Chip<kExperts, kMeeting>& c, const float* pivot, float quantile) {
  Seen seen;
  look_at_rows(c, pivot, seen);
  share_seen(c, seen);
  start_prices(c, pivot, quantile);
  float variances = 0;
#pragma unroll 1
  for (int e = threadIdx.x % 32; e < c.experts; e += 32) variances += c.product[e];
  variances = lanes_sum(variances, 32) / static_cast<float>(c.experts);
  const bool finite = hear_seen(c, 0);
  if (threadIdx.x == 0) {
    c.deviation = fmaxf(sqrtf(variances), fmaxf(1e-6f * c.largest, 1e-30f));
    c.turn = 1;
  }
  __syncthreads();
  return finite;
}

}  // namespace ballast::assignment::on_chip
