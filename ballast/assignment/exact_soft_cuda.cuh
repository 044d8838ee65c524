// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_rows_cuda.cuh"

// Passes that spread every token over the experts: probabilities exp((score - price) / tau).
namespace ballast::exact_cuda {

// Adds a row's products of probabilities to the Hessian; `weight` are this lane's probabilities.
template <int C>
__device__ inline void add_curvature(Block& b, int token, int lane, const float (&weight)[C],
                                     int* hessian) {
  const Rows& rows = b.rows;
  const int warp = threadIdx.x / 32, slot = threadIdx.x % 32 / rows.lanes;
  float least = 0.01f;
  int mine = 0;
#pragma unroll
  for (int i = 0; i < C; ++i) mine += weight[i] > least;
  int count = lanes_sum(mine, rows.lanes);
  while (__any_sync(kAll, count > kHeavy)) {
    if (count > kHeavy) least *= 2;
    mine = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) mine += weight[i] > least;
    count = lanes_sum(mine, rows.lanes);
  }
  if (!__any_sync(kAll, count > 1)) return;
  Heavy& list = b.heavy[warp][slot];
  if (lane == 0) list.count = 0;
  __syncwarp();
  if (count > 1) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (weight[i] > least) {
        const int at = atomicAdd(&list.count, 1);
        list.expert[at] = lane + i * rows.lanes;
        list.weight[at] = weight[i];
      }
    }
  }
  __syncwarp();
  const float scale = static_cast<float>(1u << b.curve_bits);
  const int n = list.count;
  for (int pair = lane; pair < n * n; pair += rows.lanes) {
    const int i = pair / n, j = pair % n;
    if (i == j) continue;
    const int amount = static_cast<int>(list.weight[i] * list.weight[j] * scale);
    atomicAdd(&hessian[list.expert[i] * rows.experts + list.expert[j]], amount);
  }
  __syncwarp();
}

// One pass at b.price. Adds to this turn's sums; `hessian` may be null.
template <int C>
__device__ void soft_pass(Block& b, double tau, int* hessian) {
  const Rows& rows = b.rows;
  const double log2e = 1.4426950408889634;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.bias[e] = static_cast<float>(b.price[e] * (log2e / tau));
    b.hard[e] = b.soft[e] = b.square[e] = 0;
  }
  __syncthreads();
  const float a = static_cast<float>(b.soft_scale * (log2e / tau));
  float bias[C], soft[C], square[C];
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int expert = threadIdx.x % rows.lanes + i * rows.lanes;
    bias[i] = expert < rows.experts ? b.bias[expert] : 0;
    soft[i] = square[i] = 0;
  }
  for_rows(rows, [&](int token, int lane) {
    float value[C];
    read_row<C>(rows, token, lane, value);
    float best = minus_infinity();
    int at = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      value[i] = fmaf(value[i], a, -bias[i]);
      if (value[i] > best) {
        best = value[i];
        at = i;
      }
    }
    const float top = lanes_max(best, rows.lanes);
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask(rows);
    if (token >= 0 && static_cast<int>(threadIdx.x % 32) == chosen_lane(tied, token, 0)) {
      atomicAdd(&b.hard[lane + at * rows.lanes], 1);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      value[i] = token >= 0 ? fast_exp2(value[i] - top) : 0;
      sum += value[i];
    }
    sum = lanes_sum(sum, rows.lanes);
    const float inverse = token >= 0 ? 1 / sum : 0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      value[i] *= inverse;
      soft[i] += value[i];
    }
    if (hessian != nullptr) {
#pragma unroll
      for (int i = 0; i < C; ++i) square[i] = fmaf(value[i], value[i], square[i]);
      add_curvature<C>(b, token, lane, value, hessian);
    }
  });
  const float fixed = static_cast<float>(1u << b.fixed_bits);
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int expert = threadIdx.x % rows.lanes + i * rows.lanes;
    if (expert >= rows.experts) continue;
    const int s = __float2int_rn(soft[i] * fixed), q = __float2int_rn(square[i] * fixed);
    if (s != 0) atomicAdd(&b.soft[expert], s);
    if (q != 0) atomicAdd(&b.square[expert], q);
  }
}

// Adds what this block has found to the team's sums.
__device__ inline void publish_sums(Block& b, bool squares) {
  __syncthreads();
  const Sums sums = sums_of(b.work, b.experts, b.turn);
  auto add = [](long long* to, int amount) {
    if (amount != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(to),
                static_cast<unsigned long long>(static_cast<long long>(amount)));
    }
  };
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    add(&sums.soft[e], b.soft[e]);
    if (squares) add(&sums.square[e], b.square[e]);
    if (b.hard[e] != 0) atomicAdd(&sums.hard[e], b.hard[e]);
  }
}

// Clears the sums (and the Hessian) that the next pass will use. REQUIRES: all blocks are past the
// reading of that buffer, which was two turns ago.
__device__ inline void clear_next(Block& b, const Team& team, bool hessian) {
  const int next = (b.turn + 1) % 3;
  auto* words = reinterpret_cast<int*>(b.work.sums + next * b.work.sums_bytes);
  const int count = static_cast<int>(b.work.sums_bytes / sizeof(int));
  const int threads = team.size * blockDim.x;
  for (int i = team.rank * blockDim.x + threadIdx.x; i < count; i += threads) words[i] = 0;
  if (!hessian) return;
  const int entries = b.experts * b.experts;
  int* matrix = b.work.hessian + static_cast<size_t>(next) * entries;
  for (int i = team.rank * blockDim.x + threadIdx.x; i < entries; i += threads) matrix[i] = 0;
}

// Sum of tokens above the bounds, or that are missing below them, for loads of counted tokens.
__device__ inline int imbalance_of(Block& b, const int* loads) {
  int over = 0, under = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    const int load = __ldcg(&loads[e]);
    over += max(0, load - b.upper[e]);
    under += max(0, b.lower[e] - load);
  }
  over = block_sum(over, b.int_scratch);
  under = block_sum(under, b.int_scratch);
  return max(over, under - b.padding);
}

}  // namespace ballast::exact_cuda
