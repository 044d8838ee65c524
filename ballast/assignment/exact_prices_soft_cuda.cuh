// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_passes_cuda.cuh"
#include "ballast/assignment/exact_scan_rows_cuda.cuh"

// Passes that spread every token over the experts: probabilities exp((score - price) / tau).
namespace ballast::assignment::exact_cuda {

constexpr int kMostSpread = 256;  // experts up to which all products of a token are affordable

// All products of a row that stands for `spread_every` rows. A warp's work; `takes_part` is the
// same for all lanes of a row.
template <class M>
__device__ inline void add_spread_curvature(const Problem& p, const Prices& prices, int lane,
                                            bool takes_part, const float (&weight)[M::kValues],
                                            int* hessian) {
  const float scale =
      static_cast<float>(1u << prices.curve_bits) * static_cast<float>(prices.spread_every);
  const int row_lane = threadIdx.x % 32 / M::kLanes * M::kLanes;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    for (int other = 0; other < M::kLanes; ++other) {
      const float product = __shfl_sync(kAll, weight[i], row_lane + other) * scale;
      const int expert = M::expert(other, i);
      if (!takes_part || expert >= p.experts) continue;
      int* row = hessian + expert * p.experts;
#pragma unroll
      for (int j = 0; j < M::kValues; ++j) {
        const int column = M::expert(lane, j);
        const int amount = static_cast<int>(product * weight[j]);
        if (amount != 0 && column != expert && column < p.experts) {
          atomicAdd(&row[column], amount);
        }
      }
    }
  }
}

// Adds a row's products of probabilities to the Hessian; `weight` are this lane's probabilities,
// `top` is the row's largest.
template <class M>
__device__ inline void add_curvature(Problem& p, const Prices& prices, int token, int lane,
                                     float top, const float (&weight)[M::kValues], int* hessian) {
  const int warp = threadIdx.x / 32, slot = threadIdx.x % 32 / M::kLanes;
  float least = 0.01f;
  int mine = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) mine += weight[i] > least;
  int count = lanes_sum(mine, M::kLanes);
  if constexpr (M::kWidth <= kMostSpread) {
    // Without their products tokens that are alike would pull at all experts one by one.
    const bool spread = token >= 0 && (count > kHeavy || top < 0.1f);
    const bool takes_part = spread && token % prices.spread_every == 0;
    if (__any_sync(kAll, takes_part))
      add_spread_curvature<M>(p, prices, lane, takes_part, weight, hessian);
    if (spread) count = 0;
  }
  while (__any_sync(kAll, count > kHeavy)) {
    if (count > kHeavy) least *= 2;
    mine = 0;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) mine += weight[i] > least;
    count = lanes_sum(mine, M::kLanes);
  }
  Heavy& list = prices.heavy[warp * M::kTogether + slot];
  if (lane == 0) list.count = 0;
  __syncwarp();
  if (count > 1) {
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      if (weight[i] > least) {
        const int at = atomicAdd(&list.count, 1);
        list.expert[at] = M::expert(lane, i);
        list.weight[at] = weight[i];
      }
    }
  }
  __syncwarp();
  const float scale = static_cast<float>(1u << prices.curve_bits);
  const int n = list.count;
  for (int i = 0; i < n; ++i) {
    const float weight_i = list.weight[i] * scale;
    int* row = hessian + list.expert[i] * p.experts;
    for (int j = lane; j < n; j += M::kLanes) {
      if (j != i) atomicAdd(&row[list.expert[j]], static_cast<int>(weight_i * list.weight[j]));
    }
  }
  __syncwarp();
}

// The same where one thread has the whole row.
template <class M>
__device__ inline void add_own_curvature(const Problem& p, const Prices& prices,
                                         const float (&weight)[M::kValues], int* hessian) {
  const float scale = static_cast<float>(1u << prices.curve_bits);
#pragma unroll
  for (int i = 1; i < M::kValues; ++i) {
    if (!(weight[i] > 0.01f)) continue;
#pragma unroll
    for (int j = 0; j < i; ++j) {
      if (!(weight[j] > 0.01f)) continue;
      const int amount = static_cast<int>(weight[i] * weight[j] * scale);
      atomicAdd(&hessian[i * p.experts + j], amount);
      atomicAdd(&hessian[j * p.experts + i], amount);
    }
  }
}

// Adds the lanes' sums for each expert to `sums`, in fixed point.
template <class M>
__device__ inline void add_fixed(const Problem& p, const Prices& prices, float (&sum)[M::kValues],
                                 int* sums) {
  const float fixed = static_cast<float>(1u << prices.fixed_bits);
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
#pragma unroll
    for (int step = M::kLanes; step < 32; step *= 2) {
      sum[i] += __shfl_xor_sync(kAll, sum[i], step);
    }
    const int expert = M::expert(threadIdx.x % M::kLanes, i);
    const int amount = __float2int_rn(sum[i] * fixed);
    if (static_cast<int>(threadIdx.x % 32) < M::kLanes && expert < p.experts && amount != 0) {
      atomicAdd(&sums[expert], amount);
    }
  }
}

// One pass at p.price. `hessian` may be null. Leaves this block's sums in prices.soft, square and
// hard.
template <class M>
__noinline__ __device__ void soft_pass(Problem& p, const Prices& prices, double tau, int* hessian) {
  const Rows& rows = p.rows;
  const float factor = 1.44269504f / static_cast<float>(tau);
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    prices.bias[e] = static_cast<float>(p.price[e]) * factor;
    p.hard[e] = prices.soft[e] = prices.square[e] = 0;
  }
  __syncthreads();
  const float a = static_cast<float>(p.soft_scale) * factor;
  int* hard = p.hard;
  float bias[M::kValues], soft[M::kValues], square[M::kValues];
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(threadIdx.x % M::kLanes, i);
    bias[i] = expert < p.experts ? prices.bias[expert] : 0;
    soft[i] = square[i] = 0;
  }
  for_rows<M>(rows, [&](int token, int lane, float(&value)[M::kValues]) {
    float best = minus_infinity();
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      value[i] = fmaf(value[i], a, -bias[i]);
      best = fmaxf(best, value[i]);
    }
    const float top = lanes_max(best, M::kLanes);
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask<M>();
    float sum = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      if (value[i] == top) at = i;
      value[i] = fast_exp2(value[i] - top);
      sum += value[i];
    }
    sum = lanes_sum(sum, M::kLanes);
    const float inverse = token >= 0 ? __fdividef(1, sum) : 0;
    if (token >= 0 && static_cast<int>(threadIdx.x % 32) == chosen_lane(tied, token)) {
      atomicAdd(&hard[M::expert(lane, at)], 1);
    }
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      value[i] = token >= 0 ? value[i] * inverse : 0;
      soft[i] += value[i];
    }
    if (hessian == nullptr) return;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) square[i] = fmaf(value[i], value[i], square[i]);
    if (__any_sync(kAll, inverse > 0 && inverse < 0.99f)) {
      if constexpr (M::kLanes == 1) {
        add_own_curvature<M>(p, prices, value, hessian);
      } else {
        add_curvature<M>(p, prices, token, lane, inverse, value, hessian);
      }
    }
  });
  add_fixed<M>(p, prices, soft, prices.soft);
  if (hessian != nullptr) add_fixed<M>(p, prices, square, prices.square);
}

// Adds what this block has found to the team's sums.
__device__ inline void publish_sums(Problem& p, const Prices& prices, const Team& team,
                                    bool squares) {
  __syncthreads();
  if (team.size == 1) return;
  const Sums sums = p.passes.now(p.experts);
  auto add = [](long long* to, int amount) {
    if (amount != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(to),
                static_cast<unsigned long long>(static_cast<long long>(amount)));
    }
  };
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    add(&sums.soft[e], prices.soft[e]);
    if (squares) add(&sums.square[e], prices.square[e]);
    if (p.hard[e] != 0) atomicAdd(&sums.hard[e], p.hard[e]);
  }
}

// The same with the Hessian.
__device__ inline void clear_next_curve(Problem& p, const Prices& prices, const Team& team) {
  clear_next(p, team);
  int* matrix = prices.hessian_of((p.passes.turn + 1) % 3, p.experts);
  const int threads = team.size * blockDim.x;
  for (int i = team.rank * blockDim.x + threadIdx.x; i < p.experts * p.experts; i += threads)
    matrix[i] = 0;
}

// The team's sums of a soft pass, in p.hard, prices.load and prices.squares.
__device__ inline void collect_sums(Problem& p, const Prices& prices, const Team& team,
                                    const Sums& sums, bool squares) {
  const float unit = 1.0f / static_cast<float>(1u << prices.fixed_bits);
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    const bool alone = team.size == 1;
    const long long soft = alone ? prices.soft[e] : __ldcg(&sums.soft[e]);
    prices.load[e] = static_cast<float>(soft) * unit;
    if (squares) {
      const long long square = alone ? prices.square[e] : __ldcg(&sums.square[e]);
      prices.squares[e] = static_cast<float>(square) * unit;
    }
    if (!alone) p.hard[e] = __ldcg(&sums.hard[e]);
  }
}

}  // namespace ballast::assignment::exact_cuda
