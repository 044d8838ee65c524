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

template <int kExperts>
__device__ void look_at_rows(const Chip<kExperts>& c, const float* pivot, Seen& seen) {
  constexpr int kLanes = Chip<kExperts>::kLanes;
  for (int base = 0; base < c.count; base += Chip<kExperts>::kTogether) {
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
template <int kExperts>
__device__ inline float* squares_of_warps(Chip<kExperts>& c) {
  return reinterpret_cast<float*>(c.arena());
}
template <int kExperts>
__device__ inline float* squares_of_blocks(Chip<kExperts>& c) {
  return c.desk != nullptr ? c.desk->squares[0] : squares_of_warps(c) + kWarps * kExperts;
}
template <int kExperts>
__device__ inline float* squares_for(Chip<kExperts>& c, int copy) {
  float* here = squares_of_blocks(c);
  return c.desk != nullptr ? here : cooperative_groups::this_cluster().map_shared_rank(here, copy);
}

// Tells all blocks what this one has seen: sums and squares, and as values the largest score and
// whether one is not finite. The first turn's notes.
template <int kExperts>
__device__ void share_seen(Chip<kExperts>& c, Seen& seen) {
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
  for (int copy = threadIdx.x / kExperts; copy < copies(c); copy += Chip<kExperts>::kSplit) {
    Note<kExperts>& note = note_for(c, copy, 0);
    note.load[e] = sum;
    squares_for(c, copy)[c.rank * kExperts + e] = square;
    if (e == 0) {
      note.value[0] = largest;
      note.value[1] = finite ? 0 : 1;
    }
  }
  meet(c);
}

// Prices above which 1/E of each expert's scores would lie if they were normal, in c.cold_price.
// Leaves variances in c.product.
template <int kExperts>
__device__ void start_prices(Chip<kExperts>& c, const float* pivot, float quantile) {
  const float inverse = 1.0f / static_cast<float>(c.tokens);
  sum_blocks<kExperts, float>(
      c, [&](int block, int e) { return note_of(c, block, 0).load[e]; },
      [&](int e, float sum) { c.load[e] = e < c.experts ? sum * inverse : 0; });
  __syncthreads();
  const float* squares = squares_of_blocks(c);
  sum_blocks<kExperts, float>(
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
template <int kExperts>
__device__ inline void tell_seen(Chip<kExperts>& c) {
  if (static_cast<int>(threadIdx.x) >= copies(c)) return;
  Note<kExperts>& note = note_for(c, threadIdx.x, c.turn);
  note.value[0] = c.own_largest;
  note.value[1] = c.own_refused;
}

// What all blocks told in the notes of `turn`: the largest score, in c.largest. False: a score is
// not finite.
template <int kExperts>
__device__ bool hear_seen(Chip<kExperts>& c, int turn) {
  if (threadIdx.x < 32) {
    double largest = 0, refused = 0;
#pragma unroll 1
    for (int block = threadIdx.x; block < c.blocks; block += 32) {
      largest = fmax(largest, note_of(c, block, turn).value[0]);
      refused += note_of(c, block, turn).value[1];
    }
    largest = lanes_max(largest, 32);
    refused = lanes_sum(refused, 32);
    if (threadIdx.x == 0) {
      c.largest = static_cast<float>(largest);
      c.flag = refused > 0 ? 0 : 1;
    }
  }
  __syncthreads();
  const bool finite = c.flag != 0;
  __syncthreads();
  return finite;
}

// Sets c.deviation by some rows of the scores less the prices in c.price. All blocks read the same
// rows, so they need not meet.
template <int kExperts>
__device__ void sample_deviation(Chip<kExperts>& c, const CudaProblems& p, int problem) {
  constexpr int kLanes = Chip<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes, rows = min(64, c.tokens);
  float value[kValues] = {}, total = 0, squares = 0;
  if (row < rows) {
    const int token = row * (c.tokens / rows);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int e = expert_at<kExperts>(lane, i);
      if (e >= c.experts) continue;
      value[i] = raw_score(p, problem, token, e) - c.price[e];
      total += value[i];
    }
  }
  const float mean = lanes_sum(total, kLanes) / static_cast<float>(c.experts);
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const float x = expert_at<kExperts>(lane, i) < c.experts ? value[i] - mean : 0;
    squares = fmaf(x, x, squares);
  }
  squares = exact_cuda::block_sum(squares, c.warp_sums[0]);
  if (threadIdx.x == 0)
    c.deviation = fmaxf(sqrtf(squares / static_cast<float>(rows * c.experts)), 1e-30f);
  __syncthreads();
}

// Sets c.cold_price, c.deviation and c.largest. False: a score is not finite. `pivot`: the first
// token's scores.
template <int kExperts>
__device__ bool first_look(Chip<kExperts>& c, const float* pivot, float quantile) {
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
