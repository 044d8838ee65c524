// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_newton_cuda.cuh"

// Prices at which the tokens' best experts are nearly balanced: a few Sinkhorn steps at falling
// temperature, then Newton's method. Every block computes the same from the team's sums.
namespace ballast::assignment::exact_cuda {

struct Annealing {
  double tau;
  double ratio;  // of the Sinkhorn steps' temperatures
  double newton_tau;
  double last_soft = 9;
  int sinkhorn_left;
  int stalled = 0;
  int at_floor = 0;  // passes at the lowest temperature
  int best_hard = 0x7fffffff;
  int goal;  // imbalance that is good enough
};

// Adds to the prices, whose lowest becomes 0. Every warp has the same `change`; one writes.
template <class M>
__device__ inline void change_prices(Block& b, const Spread<M>& change, double factor) {
  constexpr int kEach = Spread<M>::kEach;
  __syncthreads();  // others may still read the old prices
  if (threadIdx.x < 32) {
    double price[kEach], low = 1e300;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x + 32 * i;
      price[i] = e < b.experts ? b.price[e] + factor * static_cast<double>(change.at[i]) : 1e300;
      low = fmin(low, price[i]);
    }
    low = lanes_min(low, 32);
    const double limit = b.forbid != 0 ? 1e3 : 2;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x + 32 * i;
      if (e < b.experts) b.price[e] = fmin(price[i] - low, limit);
    }
  }
  __syncthreads();
}

// Tokens at an expert after a soft pass, padding and empty places included.
__device__ inline float soft_load(const Block& b, int e) {
  float load = b.vector[kLoad][e];
  if (b.padding > 0 || b.empty > 0) load += b.vector[kPadding][e] + b.vector[kEmpty][e];
  return load;
}

template <class M>
__device__ inline void sinkhorn_step(Block& b, double tau) {
  Spread<M> change;
  change.set(b.experts, [&](int e) {
    const float load = fmaxf(soft_load(b, e), 1e-3f);
    return logf(load / fmaxf(static_cast<float>(b.upper[e]), 0.5f));
  });
  change_prices<M>(b, change, tau);
}

template <class M>
__noinline__ __device__ void newton_step(Block& b, Team& team, const int* matrix, double tau) {
  constexpr int kEach = Spread<M>::kEach;
  Hessian hessian;
  hessian.open(b, matrix);
  hessian.add_rows(b, team);
  Rest<M> rest;
  Spread<M> residual, answer;
  rest.classes = b.padding > 0 || b.empty > 0;
  rest.tokens = static_cast<float>(b.padding);
  rest.padding.set(b.experts, [&](int e) { return rest.classes ? b.vector[kPadding][e] : 0.0f; });
  rest.slope.set(b.experts, [&](int e) { return rest.classes ? b.vector[kSlope][e] : 0.0f; });
  rest.slopes = rest.classes ? lanes_sum(rest.slope.sum(), 32) : 0.0f;
  // Products of a sample may add up to more than those of all: never to more than the diagonal.
  rest.diagonal.set(b.experts, [&](int e) {
    return fmaxf(b.vector[kLoad][e] - b.vector[kSquare][e], -b.vector[kProduct][e]);
  });
  residual.set(b.experts, [&](int e) { return soft_load(b, e) - static_cast<float>(b.upper[e]); });
#pragma unroll
  for (int i = 0; i < kEach; ++i) rest.diagonal.at[i] += rest.padding.at[i] + rest.slope.at[i];
  const float damping = 1e-3f * lanes_sum(rest.diagonal.sum(), 32) / b.experts + 1e-6f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) rest.diagonal.at[i] += damping;
  conjugate_gradients<M>(b, team, hessian, rest, residual, answer);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(answer.at[i]));
  largest = lanes_max(largest, 32);
  change_prices<M>(b, answer, largest > 6 ? tau * 6 / largest : tau);
}

// What the sums of a pass say. True: good enough, or no better in sight.
template <class M>
__device__ inline bool judge(Block& b, Annealing& a, bool newton, double& soft) {
  float spill = 0, over = 0, under = 0;
  __syncthreads();
  for (int e = threadIdx.x % 32; e < b.experts; e += 32) {
    spill += fmaxf(0, soft_load(b, e) - static_cast<float>(b.upper[e]));
    over += static_cast<float>(max(0, b.hard[e] - b.upper[e]));
    under += static_cast<float>(max(0, b.lower[e] - b.hard[e]));
  }
  spill = lanes_sum(spill, 32);
  over = lanes_sum(over, 32);
  under = lanes_sum(under, 32);
  soft = spill / static_cast<float>(b.counted + b.padding);
  const int hard = max(static_cast<int>(over), static_cast<int>(under) - b.padding);
  if (hard < a.best_hard) {
    if (hard < 0.8 * a.best_hard) {
      a.stalled = 0;
    } else if (newton && soft < 0.02) {
      ++a.stalled;
    }
    a.best_hard = hard;
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.best[e] = b.price[e];
  } else if (newton && soft < 0.02) {
    ++a.stalled;
  }
  // While very many tokens are at wrong experts it is still too warm to tell those apart that are
  // alike, however even the probabilities are.
  const int patience = hard > b.counted / 20 ? 8 : 2;
  return hard <= a.goal || (newton && a.stalled >= patience) || a.at_floor >= 3;
}

// The next temperature after a Newton step at a pass of soft imbalance `soft`.
__device__ inline void cool(Block& b, Annealing& a, double soft) {
  double factor = soft < 0.04 ? 0.4 : soft < 0.1 ? 0.55 : 1.0;
  if (soft > 0.7 * a.last_soft && soft > 0.03) factor = soft > 0.1 ? 1.6 : 1.0;
  a.last_soft = soft;
  // Below this, rounding to fp32 blurs probabilities more than the temperature does.
  constexpr double kFloor = 1.0 / (1 << 24);
  const double floor = fmax(b.deviation * 1e-8, kFloor);
  a.at_floor += a.tau <= floor;
  a.tau = fmax(a.tau * factor, floor);
}

template <class M>
__device__ void anneal(Block& b, Team& team, Annealing a) {
  for (int pass = 0; pass < 60; ++pass) {
    const bool newton = a.sinkhorn_left <= 0;
    int* matrix = b.work.hessian + static_cast<size_t>(b.turn) * b.experts * b.experts;
    if (b.padding > 0 || b.empty > 0) spread_classes(b, a.tau);
    soft_pass<M>(b, a.tau, newton ? matrix : nullptr);
    publish_sums(b, team, newton);
    clear_next(b, team, true);
    const Sums sums = finish_pass(b, team);
    collect_sums(b, team, sums, newton);
    double soft = 0;
    const bool enough = judge<M>(b, a, newton, soft);
    if (enough) break;
    if (!newton || soft > 0.25) {
      sinkhorn_step<M>(b, a.tau);
      --a.sinkhorn_left;
      if (a.sinkhorn_left > 0) {
        a.tau *= a.ratio;
      } else {
        a.tau = newton ? a.tau * 1.5 : a.newton_tau;
      }
    } else {
      newton_step<M>(b, team, matrix, a.tau);
      cool(b, a, soft);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] = b.best[e];
  __syncthreads();
}

// An imbalance that is left to the repair.
__device__ inline int goal_of(const Block& b) {
  return max(1, static_cast<int>(fmaxf(0.2f * b.experts, 0.001f * b.counted)));
}

// How to start, from the loads at the start prices, which are in b.price: as they are, or cold.
__device__ inline Annealing plan_annealing(Block& b, int start_imbalance, bool warm) {
  Annealing a;
  a.goal = goal_of(b);
  a.newton_tau = 0.1 * b.deviation;
  const double share = static_cast<double>(start_imbalance) / max(1, b.counted);
  a.sinkhorn_left = 6;
  a.tau = b.range / 4;
  if (warm && share < 0.4) {
    a.sinkhorn_left = share < 0.12 ? 0 : 2;
    a.tau = b.deviation * (share < 0.05 ? 0.05 : share < 0.12 ? 0.1 : 0.2);
  } else {
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] = 0;
  }
  a.tau = fmax(a.tau, a.newton_tau * 0.5);
  a.ratio = a.sinkhorn_left > 1 ? pow(a.newton_tau / a.tau, 1.0 / (a.sinkhorn_left - 1)) : 1;
  __syncthreads();
  return a;
}

}  // namespace ballast::assignment::exact_cuda
