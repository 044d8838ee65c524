// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_prices_newton_cuda.cuh"

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
__device__ inline void change_prices(Problem& p, const Spread<M>& change, double factor) {
  constexpr int kEach = Spread<M>::kEach;
  __syncthreads();  // others may still read the old prices
  if (threadIdx.x < 32) {
    double price[kEach], low = 1e300;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x + 32 * i;
      price[i] = e < p.experts ? p.price[e] + factor * static_cast<double>(change.at[i]) : 1e300;
      low = fmin(low, price[i]);
    }
    low = lanes_min(low, 32);
    const double limit = p.forbid != 0 ? 1e3 : 2;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = threadIdx.x + 32 * i;
      if (e < p.experts) p.price[e] = fmin(price[i] - low, limit);
    }
  }
  __syncthreads();
}

// Tokens at an expert after a soft pass, padding and empty places included.
__device__ inline float soft_load(const Problem& p, const Prices& prices, int e) {
  float load = prices.load[e];
  if (p.has_classes()) load += prices.padding[e] + prices.empty[e];
  return load;
}

template <class M>
__device__ inline void sinkhorn_step(Problem& p, const Prices& prices, double tau) {
  Spread<M> change;
  change.set(p.experts, [&](int e) {
    const float load = fmaxf(soft_load(p, prices, e), 1e-3f);
    return logf(load / fmaxf(static_cast<float>(p.upper[e]), 0.5f));
  });
  change_prices<M>(p, change, tau);
}

template <class M>
__noinline__ __device__ void newton_step(Problem& p, const Prices& prices, Team& team,
                                         const int* matrix, double tau) {
  constexpr int kEach = Spread<M>::kEach;
  Hessian hessian;
  hessian.open(p, prices, matrix);
  hessian.add_rows(p, prices, team);
  Rest<M> rest;
  Spread<M> residual, answer;
  rest.classes = p.has_classes();
  rest.tokens = static_cast<float>(p.padding);
  rest.padding.set(p.experts, [&](int e) { return rest.classes ? prices.padding[e] : 0.0f; });
  rest.slope.set(p.experts, [&](int e) { return rest.classes ? prices.slope[e] : 0.0f; });
  rest.slopes = rest.classes ? lanes_sum(rest.slope.sum(), 32) : 0.0f;
  // Products of a sample may add up to more than those of all: never to more than the diagonal.
  rest.diagonal.set(p.experts, [&](int e) {
    return fmaxf(prices.load[e] - prices.squares[e], -prices.product[e]);
  });
  residual.set(p.experts,
               [&](int e) { return soft_load(p, prices, e) - static_cast<float>(p.upper[e]); });
#pragma unroll
  for (int i = 0; i < kEach; ++i) rest.diagonal.at[i] += rest.padding.at[i] + rest.slope.at[i];
  const float damping = 1e-3f * lanes_sum(rest.diagonal.sum(), 32) / p.experts + 1e-6f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) rest.diagonal.at[i] += damping;
  conjugate_gradients<M>(p, prices, team, hessian, rest, residual, answer);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(answer.at[i]));
  largest = lanes_max(largest, 32);
  change_prices<M>(p, answer, largest > 6 ? tau * 6 / largest : tau);
}

// What the sums of a pass say. True: good enough, or no better in sight.
template <class M>
__device__ inline bool judge(Problem& p, const Prices& prices, Annealing& a, bool newton,
                             double& soft) {
  float spill = 0, over = 0, under = 0;
  __syncthreads();
  for (int e = threadIdx.x % 32; e < p.experts; e += 32) {
    spill += fmaxf(0, soft_load(p, prices, e) - static_cast<float>(p.upper[e]));
    over += static_cast<float>(max(0, p.hard[e] - p.upper[e]));
    under += static_cast<float>(max(0, p.lower[e] - p.hard[e]));
  }
  spill = lanes_sum(spill, 32);
  over = lanes_sum(over, 32);
  under = lanes_sum(under, 32);
  soft = spill / static_cast<float>(p.counted + p.padding);
  const int hard = max(static_cast<int>(over), static_cast<int>(under) - p.padding);
  if (hard < a.best_hard) {
    if (hard < 0.8 * a.best_hard) {
      a.stalled = 0;
    } else if (newton && soft < 0.02) {
      ++a.stalled;
    }
    a.best_hard = hard;
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) prices.best[e] = p.price[e];
  } else if (newton && soft < 0.02) {
    ++a.stalled;
  }
  // While very many tokens are at wrong experts it is still too warm to tell those apart that are
  // alike, however even the probabilities are.
  const int patience = hard > p.counted / 20 ? 8 : 2;
  return hard <= a.goal || (newton && a.stalled >= patience) || a.at_floor >= 3;
}

// The next temperature after a Newton step at a pass of soft imbalance `soft`.
__device__ inline void cool(Problem& p, Annealing& a, double soft) {
  double factor = soft < 0.04 ? 0.4 : soft < 0.1 ? 0.55 : 1.0;
  if (soft > 0.7 * a.last_soft && soft > 0.03) factor = soft > 0.1 ? 1.6 : 1.0;
  a.last_soft = soft;
  // Below this, rounding to fp32 blurs probabilities more than the temperature does.
  constexpr double kFloor = 1.0 / (1 << 24);
  const double floor = fmax(p.deviation * 1e-8, kFloor);
  a.at_floor += a.tau <= floor;
  a.tau = fmax(a.tau * factor, floor);
}

template <class M>
__device__ void anneal(Problem& p, const Prices& prices, Team& team, Annealing a) {
  for (int pass = 0; pass < 60; ++pass) {
    const bool newton = a.sinkhorn_left <= 0;
    int* matrix = prices.hessian_of(p.passes.turn, p.experts);
    if (p.has_classes()) spread_classes(p, prices, a.tau);
    soft_pass<M>(p, prices, a.tau, newton ? matrix : nullptr);
    publish_sums(p, prices, team, newton);
    clear_next_curve(p, prices, team);
    const Sums sums = finish_pass(p, team);
    collect_sums(p, prices, team, sums, newton);
    double soft = 0;
    const bool enough = judge<M>(p, prices, a, newton, soft);
    if (enough) break;
    if (!newton || soft > 0.25) {
      sinkhorn_step<M>(p, prices, a.tau);
      --a.sinkhorn_left;
      if (a.sinkhorn_left > 0) {
        a.tau *= a.ratio;
      } else {
        a.tau = newton ? a.tau * 1.5 : a.newton_tau;
      }
    } else {
      newton_step<M>(p, prices, team, matrix, a.tau);
      cool(p, a, soft);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.price[e] = prices.best[e];
  __syncthreads();
}

// How to start, from the loads at the start prices, which are in p.price: as they are, or cold.
__device__ inline Annealing plan_annealing(Problem& p, int start_imbalance, bool warm) {
  Annealing a;
  a.goal = goal_of(p);
  a.newton_tau = 0.1 * p.deviation;
  const double share = static_cast<double>(start_imbalance) / max(1, p.counted);
  a.sinkhorn_left = 6;
  a.tau = p.range / 4;
  if (warm && share < 0.4) {
    a.sinkhorn_left = share < 0.12 ? 0 : 2;
    a.tau = p.deviation * (share < 0.05 ? 0.05 : share < 0.12 ? 0.1 : 0.2);
  } else {
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.price[e] = 0;
  }
  a.tau = fmax(a.tau, a.newton_tau * 0.5);
  a.ratio = a.sinkhorn_left > 1 ? pow(a.newton_tau / a.tau, 1.0 / (a.sinkhorn_left - 1)) : 1;
  __syncthreads();
  return a;
}

}  // namespace ballast::assignment::exact_cuda
