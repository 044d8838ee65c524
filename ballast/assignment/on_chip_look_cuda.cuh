// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_state_cuda.cuh"

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

// Squares take the arena: [kWarps, E] of this block, then [blocks, E] of all.
template <int kExperts>
__device__ inline float* squares_of_warps(Chip<kExperts>& c) {
  return reinterpret_cast<float*>(c.arena());
}
template <int kExperts>
__device__ inline float* squares_of_blocks(Chip<kExperts>& c) {
  return squares_of_warps(c) + kWarps * kExperts;
}

// Tells all blocks what this one has seen: sums in c.parts[0], squares in the arena, and in
// c.value_parts the largest score and whether one is not finite.
template <int kExperts>
__device__ void share_seen(Chip<kExperts>& c, Seen& seen) {
  const auto cluster = cooperative_groups::this_cluster();
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
  for (int i = threadIdx.x; i < c.blocks * kExperts; i += kThreads) {
    const int e = i % kExperts, to = i / kExperts;
    float sum = 0, square = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      sum += c.warp_sums[warp][e];
      square += squares[warp * kExperts + e];
      largest = fmaxf(largest, c.warp_most[warp]);
    }
    Chip<kExperts>* there = cluster.map_shared_rank(&c, to);
    there->parts[0][c.rank][e] = sum;
    cluster.map_shared_rank(squares_of_blocks(c), to)[c.rank * kExperts + e] = square;
    if (e == 0) {
      there->value_parts[c.rank][0] = largest;
      there->value_parts[c.rank][1] = finite ? 0 : 1;
    }
  }
  cluster.sync();
}

// Prices above which 1/E of each expert's scores would lie if they were normal, in c.cold_price.
// Leaves means in c.load and variances in c.product.
template <int kExperts>
__device__ void start_prices(Chip<kExperts>& c, const float* pivot, float quantile) {
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x;
    const float inverse = 1.0f / static_cast<float>(c.tokens);
    float sum = 0, square = 0;
    for (int block = 0; block < c.blocks; ++block) {
      sum += c.parts[0][block][e];
      square += squares_of_blocks(c)[block * kExperts + e];
    }
    const float mean = sum * inverse;
    c.product[e] = square * inverse;
    c.load[e] = e < c.experts ? mean : 0;
  }
  __syncthreads();
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x;
    float all = 0;  // the mean of the rows' means
    for (int other = 0; other < c.experts; ++other) all += c.load[other];
    const float mean = c.load[e], off = mean - all / static_cast<float>(c.experts);
    const float variance = e < c.experts ? fmaxf(c.product[e] - off * off, 0) : 0;
    c.product[e] = variance;
    c.cold_price[e] = (e < c.experts ? mean + pivot[e] : 0) + quantile * sqrtf(variance);
  }
  __syncthreads();
  if (threadIdx.x < c.experts) c.load[threadIdx.x] += pivot[threadIdx.x];
  __syncthreads();
}

// Sets c.cold_price, c.deviation, c.largest and c.blind. False: a score is not finite. `pivot`: the
// first token's scores.
template <int kExperts>
__device__ bool first_look(Chip<kExperts>& c, const float* pivot, float quantile) {
  Seen seen;
  look_at_rows(c, pivot, seen);
  share_seen(c, seen);
  start_prices(c, pivot, quantile);
  if (threadIdx.x == 0) {
    float variances = 0;
    double largest = 0, refused = 0, means = 0;
    for (int e = 0; e < c.experts; ++e) {
      variances += c.product[e];
      means += c.load[e];
    }
    for (int block = 0; block < c.blocks; ++block) {
      largest = fmax(largest, c.value_parts[block][0]);
      refused += c.value_parts[block][1];
    }
    c.largest = static_cast<float>(largest);
    c.deviation =
        fmaxf(sqrtf(variances / static_cast<float>(c.experts)), fmaxf(1e-6f * c.largest, 1e-30f));
    c.blind = means * c.even;
    c.turn = 1;
    c.flag = refused > 0 ? 0 : 1;
  }
  __syncthreads();
  const bool finite = c.flag != 0;
  __syncthreads();
  return finite;
}

}  // namespace ballast::assignment::on_chip
