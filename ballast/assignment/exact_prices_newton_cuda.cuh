// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_prices_soft_cuda.cuh"

// From the sums of a soft pass to better prices.
namespace ballast::assignment::exact_cuda {

// Padding and empty places at p.price, spread at temperature tau. One warp's work.
static __noinline__ __device__ void spread_classes(Problem& p, const Prices& prices, double tau) {
  const int lane = threadIdx.x;
  if (lane < 32) {
    double low = 1e300, high = -1e300;
    for (int e = lane; e < p.experts; e += 32) {
      low = fmin(low, p.price[e]);
      high = fmax(high, p.price[e]);
    }
    low = lanes_min(low, 32);
    high = lanes_max(high, 32);
    float total = 0;
    for (int e = lane; e < p.experts; e += 32) {
      total += expf(static_cast<float>((low - p.price[e]) / tau));
    }
    total = lanes_sum(total, 32);
    float under = -40, over = static_cast<float>((high - low) / tau) + 40;
    auto empty_at = [&](int e, float level) {
      const float x = level - static_cast<float>((p.price[e] - low) / tau);
      return (p.upper[e] - p.lower[e]) / (1 + expf(-x));
    };
    for (int i = 0; i < 40 && p.empty > 0; ++i) {
      const float middle = (under + over) / 2;
      float sum = 0;
      for (int e = lane; e < p.experts; e += 32) sum += empty_at(e, middle);
      sum = lanes_sum(sum, 32);
      (sum < p.empty ? under : over) = middle;
    }
    for (int e = lane; e < p.experts; e += 32) {
      const float share = expf(static_cast<float>((low - p.price[e]) / tau)) / total;
      prices.padding[e] = p.padding * share;
      const float room = static_cast<float>(p.upper[e] - p.lower[e]);
      const float empty = p.empty > 0 ? empty_at(e, under) : 0;
      prices.empty[e] = empty;
      prices.slope[e] = room > 0 ? empty * (1 - empty / room) : 0;
    }
  }
  __syncthreads();
}

// prices.product = minus the Hessian beside its diagonal, times prices.direction.
struct Hessian {
  static constexpr int kHeld = 32;
  static constexpr int kSplit = 4;
  float held[kHeld];  // this thread's part of a small matrix
  const int* matrix;
  float unit;
  bool local;
  int parity;

  __device__ void open(const Problem& p, const Prices& prices, const int* entries) {
    const int experts = p.experts;
    matrix = entries;
    unit = 1.0f / static_cast<float>(1u << prices.curve_bits);
    parity = 0;
    local = experts <= kHeld * kSplit && experts * kSplit <= static_cast<int>(blockDim.x);
    if (!local) return;
    const int row = threadIdx.x / kSplit, part = threadIdx.x % kSplit;
    const bool fours = experts % 4 == 0;
#pragma unroll
    for (int j = 0; j < kHeld; j += 4) {
      const int column = 4 * (part + j / 4 * kSplit);
      int4 four = make_int4(0, 0, 0, 0);
      if (row < experts && column < experts) {
        const int* from = &matrix[row * experts + column];
        if (fours) {
          four = __ldcg(reinterpret_cast<const int4*>(from));
        } else {
          four.x = __ldcg(from);
          if (column + 1 < experts) four.y = __ldcg(from + 1);
          if (column + 2 < experts) four.z = __ldcg(from + 2);
          if (column + 3 < experts) four.w = __ldcg(from + 3);
        }
      }
      held[j] = static_cast<float>(four.x) * unit;
      held[j + 1] = static_cast<float>(four.y) * unit;
      held[j + 2] = static_cast<float>(four.z) * unit;
      held[j + 3] = static_cast<float>(four.w) * unit;
    }
  }

  // Leaves minus the sums of rows in prices.product.
  __device__ void add_rows(Problem& p, const Prices& prices, Team& team) {
    float* direction = prices.direction;
    for (int e = threadIdx.x; e < (p.experts + 3) / 4 * 4; e += blockDim.x) {
      direction[e] = e < p.experts ? 1.0f : 0.0f;
    }
    __syncthreads();
    apply(p, prices, team);
  }

  // Ends with all threads in step.
  __device__ void apply(Problem& p, const Prices& prices, Team& team) {
    const float* direction = prices.direction;
    float* product = prices.product;
    const int experts = p.experts;
    if (local) {
      const int row = threadIdx.x / kSplit, part = threadIdx.x % kSplit;
      float sum = 0, more = 0;
      if (row < experts) {
#pragma unroll
        for (int j = 0; j < kHeld; j += 4) {
          const int column = 4 * (part + j / 4 * kSplit);
          float4 d = make_float4(0, 0, 0, 0);  // what lies between experts and the next four is 0
          if (column < experts) d = *reinterpret_cast<const float4*>(direction + column);
          sum = fmaf(held[j], d.x, fmaf(held[j + 1], d.y, sum));
          more = fmaf(held[j + 2], d.z, fmaf(held[j + 3], d.w, more));
        }
      }
      sum = lanes_sum(sum + more, kSplit);
      if (part == 0 && row < experts) product[row] = -sum;
    } else {
      float* shared = prices.team_product + parity * experts;
      parity ^= 1;
      const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
      for (int row = team.rank * warps + threadIdx.x / 32; row < experts;
           row += team.size * warps) {
        float sum = 0;
        const int* entries = matrix + static_cast<size_t>(row) * experts;
#pragma unroll 4
        for (int c = lane; c < experts; c += 32) {
          sum = fmaf(static_cast<float>(__ldcg(&entries[c])) * unit, direction[c], sum);
        }
        sum = lanes_sum(sum, 32);
        if (lane == 0) shared[row] = -sum;
      }
      team.meet();
      for (int e = threadIdx.x; e < experts; e += blockDim.x) product[e] = __ldcg(&shared[e]);
    }
    __syncthreads();
  }
};

// Vectors of E that every warp has whole, a part in each lane: sums over them need no other warp.
template <class M>
struct Spread {
  static constexpr int kEach = M::kWidth < 32 ? 1 : M::kWidth / 32;
  float at[kEach];

  template <typename From>
  __device__ void set(int experts, From from) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x % 32 + 32 * i;
      at[i] = e < experts ? from(e) : 0.0f;
    }
  }
  template <typename To>
  __device__ void give(int experts, To to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x % 32 + 32 * i;
      if (e < experts) to(e, at[i]);
    }
  }
  __device__ float times(const Spread& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = fmaf(at[i], other.at[i], sum);
    return sum;
  }
  __device__ float sum() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += at[i];
    return sum;
  }
};

// The rest of the Hessian: its diagonal, padding and empty places.
template <class M>
struct Rest {
  Spread<M> diagonal, padding, slope;
  float tokens, slopes;
  bool classes;

  __device__ void add(const Spread<M>& direction, Spread<M>& product) const {
    float pull = 0, push = 0;
    if (classes) {
      pull = lanes_sum(padding.times(direction), 32) / fmaxf(tokens, 1);
      push = lanes_sum(slope.times(direction), 32);
      push = slopes > 1e-6f ? push / slopes : 0;
    }
#pragma unroll
    for (int i = 0; i < Spread<M>::kEach; ++i) {
      product.at[i] = fmaf(diagonal.at[i], direction.at[i], product.at[i]);
      if (classes) product.at[i] -= padding.at[i] * pull + slope.at[i] * push;
    }
  }
};

// Solves Hessian * answer = r roughly. The first warp has the vectors; the others multiply.
template <class M>
__device__ inline void conjugate_gradients(Problem& p, const Prices& prices, Team& team,
                                           Hessian& hessian, const Rest<M>& rest, Spread<M>& r,
                                           Spread<M>& x) {
  constexpr int kEach = Spread<M>::kEach;
  const bool leads = threadIdx.x < 32;
  float* direction = prices.direction;
  const float* product = prices.product;
  Spread<M> u, path, s, w, inverse;
  float last = 1, step = 1, start = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    inverse.at[i] = __fdividef(1, rest.diagonal.at[i]);
    u.at[i] = r.at[i] * inverse.at[i];
    path.at[i] = s.at[i] = x.at[i] = 0;
  }
  if (threadIdx.x == 0) p.scratch.flag = 1;
  if (threadIdx.x < 4 && p.experts % 4 != 0 && threadIdx.x >= p.experts % 4) {
    direction[p.experts / 4 * 4 + threadIdx.x] = 0;  // read, and multiplied by 0
  }
  for (int iteration = 0; iteration < 30; ++iteration) {
    if (leads) u.give(p.experts, [&](int e, float value) { direction[e] = value; });
    __syncthreads();
    if (p.scratch.flag == 0) break;
    hessian.apply(p, prices, team);
    if (!leads) continue;
    w.set(p.experts, [&](int e) { return product[e]; });
    rest.add(u, w);
    float power = r.times(u), bend = w.times(u);
    power = lanes_sum(power, 32);
    bend = lanes_sum(bend, 32);
    if (iteration == 0) start = power;
    const float beta = iteration == 0 ? 0 : __fdividef(power, last);
    const float divisor = iteration == 0 ? bend : bend - __fdividef(beta * power, step);
    if (!(power > 1e-4f * start) || !(divisor > 0) || !(power < 1e30f)) {
      if (threadIdx.x == 0) p.scratch.flag = 0;
      continue;
    }
    step = __fdividef(power, divisor);
    last = power;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      path.at[i] = fmaf(beta, path.at[i], u.at[i]);
      s.at[i] = fmaf(beta, s.at[i], w.at[i]);
      x.at[i] = fmaf(step, path.at[i], x.at[i]);
      r.at[i] = fmaf(-step, s.at[i], r.at[i]);
      u.at[i] = r.at[i] * inverse.at[i];
    }
  }
  __syncthreads();
}

}  // namespace ballast::assignment::exact_cuda
