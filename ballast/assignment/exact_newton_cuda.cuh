// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_soft_cuda.cuh"

// From the sums of a soft pass to better prices.
namespace ballast::exact_cuda {

// Padding and empty places at b.price, spread at temperature tau. One warp's work.
__device__ inline void spread_classes(Block& b, double tau) {
  const int lane = threadIdx.x;
  if (lane < 32) {
    double low = 1e300, high = -1e300;
    for (int e = lane; e < b.experts; e += 32) {
      low = fmin(low, b.price[e]);
      high = fmax(high, b.price[e]);
    }
    low = lanes_min(low, 32);
    high = lanes_max(high, 32);
    float total = 0;
    for (int e = lane; e < b.experts; e += 32) {
      total += expf(static_cast<float>((low - b.price[e]) / tau));
    }
    total = lanes_sum(total, 32);
    float under = -40, over = static_cast<float>((high - low) / tau) + 40;
    auto empty_at = [&](int e, float level) {
      const float x = level - static_cast<float>((b.price[e] - low) / tau);
      return (b.upper[e] - b.lower[e]) / (1 + expf(-x));
    };
    for (int i = 0; i < 40 && b.empty > 0; ++i) {
      const float middle = (under + over) / 2;
      float sum = 0;
      for (int e = lane; e < b.experts; e += 32) sum += empty_at(e, middle);
      sum = lanes_sum(sum, 32);
      (sum < b.empty ? under : over) = middle;
    }
    for (int e = lane; e < b.experts; e += 32) {
      const float share = expf(static_cast<float>((low - b.price[e]) / tau)) / total;
      b.vector[kPadding][e] = b.padding * share;
      const float room = static_cast<float>(b.upper[e] - b.lower[e]);
      const float empty = b.empty > 0 ? empty_at(e, under) : 0;
      b.vector[kEmpty][e] = empty;
      b.vector[kSlope][e] = room > 0 ? empty * (1 - empty / room) : 0;
    }
  }
  __syncthreads();
}

// vector[kProduct] = Hessian * vector[kDirection]. `held`: this thread's part of a small Hessian.
struct Hessian {
  static constexpr int kHeld = 32;
  static constexpr int kSplit = 4;
  float held[kHeld];
  const int* matrix;
  float unit;
  bool local;
  int parity;

  __device__ void open(const Block& b, const int* entries) {
    matrix = entries;
    unit = 1.0f / static_cast<float>(1u << b.curve_bits);
    parity = 0;
    local = b.experts <= kHeld * kSplit && b.experts * kSplit <= static_cast<int>(blockDim.x);
    if (!local) return;
    const int row = threadIdx.x / kSplit, part = threadIdx.x % kSplit;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int column = part + j * kSplit;
      held[j] = row < b.experts && column < b.experts
                    ? static_cast<float>(__ldcg(&matrix[row * b.experts + column])) * unit
                    : 0;
    }
  }

  // Ends with all threads in step.
  __device__ void apply(Block& b, Team& team) {
    const float* direction = b.vector[kDirection];
    if (local) {
      const int row = threadIdx.x / kSplit, part = threadIdx.x % kSplit;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int column = part + j * kSplit;
        if (column < b.experts) sum = fmaf(held[j], direction[column], sum);
      }
      sum = lanes_sum(sum, kSplit);
      if (part == 0 && row < b.experts) b.vector[kProduct][row] = -sum;
    } else {
      float* shared = b.work.product + parity * b.experts;
      parity ^= 1;
      const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
      for (int row = team.rank * warps + threadIdx.x / 32; row < b.experts;
           row += team.size * warps) {
        float sum = 0;
        const int* entries = matrix + static_cast<size_t>(row) * b.experts;
        for (int c = lane; c < b.experts; c += 32) {
          sum = fmaf(static_cast<float>(__ldcg(&entries[c])) * unit, direction[c], sum);
        }
        sum = lanes_sum(sum, 32);
        if (lane == 0) shared[row] = -sum;
      }
      team.meet();
      for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
        b.vector[kProduct][e] = __ldcg(&shared[e]);
      }
    }
    __syncthreads();
    float padding = 0, empty = 0, slope = 0;
    if (b.padding > 0 || b.empty > 0) {
      for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
        padding = fmaf(b.vector[kPadding][e], direction[e], padding);
        empty = fmaf(b.vector[kSlope][e], direction[e], empty);
        slope += b.vector[kSlope][e];
      }
      block_sums(padding, empty, slope, b.float_scratch);
      padding /= fmaxf(static_cast<float>(b.padding), 1);
      empty = slope > 1e-6f ? empty / slope : 0;
    }
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
      float w = b.vector[kProduct][e] + b.vector[kDiagonal][e] * direction[e];
      if (b.padding > 0) w -= b.vector[kPadding][e] * padding;
      if (b.empty > 0) w -= b.vector[kSlope][e] * empty;
      b.vector[kProduct][e] = w;
    }
  }
};

// Solves Hessian * vector[kAnswer] = vector[kResidual] roughly; the inverse diagonal is in b.bias.
// One reduction an iteration, since that is what takes time.
__device__ inline int conjugate_gradients(Block& b, Team& team, Hessian& hessian) {
  float *u = b.vector[kDirection], *r = b.vector[kResidual], *p = b.vector[kSearch];
  float *s = b.vector[kImage], *x = b.vector[kAnswer], *w = b.vector[kProduct];
  float last = 0, step = 0, start = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    u[e] = r[e] * b.bias[e];
    p[e] = s[e] = x[e] = 0;
  }
  __syncthreads();
  for (int iteration = 0; iteration < 30; ++iteration) {
    hessian.apply(b, team);
    float power = 0, bend = 0, none = 0;
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
      power = fmaf(r[e], u[e], power);
      bend = fmaf(w[e], u[e], bend);
    }
    block_sums(power, bend, none, b.float_scratch);
    if (iteration == 0) start = power;
    const float beta = iteration == 0 ? 0 : power / last;
    const float divisor = iteration == 0 ? bend : bend - beta * power / step;
    if (!(power > 1e-4f * start) || !(divisor > 0) || !(power < 1e30f)) return iteration;
    step = power / divisor;
    last = power;
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
      p[e] = fmaf(beta, p[e], u[e]);
      s[e] = fmaf(beta, s[e], w[e]);
      x[e] = fmaf(step, p[e], x[e]);
      r[e] = fmaf(-step, s[e], r[e]);
      u[e] = r[e] * b.bias[e];
    }
    __syncthreads();
  }
  return 30;
}

}  // namespace ballast::exact_cuda
