// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_newton_cuda.cuh"

// Prices at which the tokens' best experts are nearly balanced: a few Sinkhorn steps at falling
// temperature, then Newton's method. Every block computes the same from the team's sums.
namespace ballast::exact_cuda {

struct Annealing {
  double tau;
  double ratio;  // of the Sinkhorn steps' temperatures
  double newton_tau;
  double last_soft = 9;
  int sinkhorn_left;
  int stalled = 0;
  int best_hard = 0x7fffffff;
  int goal;  // imbalance that is good enough
};

__device__ inline void normalise_prices(Block& b) {
  __syncthreads();
  double low = 1e300;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) low = fmin(low, b.price[e]);
  low = -block_max(-low, b.sum_scratch);
  const double limit = b.forbid ? 1e3 : 2;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.price[e] = fmin(b.price[e] - low, limit);
  }
  __syncthreads();
}

// Tokens at an expert after a soft pass, padding and empty places included.
__device__ inline float soft_load(const Block& b, int e) {
  float load = b.vector[kLoad][e];
  if (b.padding > 0 || b.empty > 0) load += b.vector[kPadding][e] + b.vector[kEmpty][e];
  return load;
}

__device__ inline void sinkhorn_step(Block& b, double tau) {
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    const float load = fmaxf(soft_load(b, e), 1e-3f);
    const float want = fmaxf(static_cast<float>(b.upper[e]), 0.5f);
    b.price[e] += tau * logf(load / want);
  }
  normalise_prices(b);
}

__device__ inline int newton_step(Block& b, Team& team, const int* matrix, double tau) {
  Hessian hessian;
  hessian.open(b, matrix);
  float trace = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    float diagonal = fmaxf(b.vector[kLoad][e] - b.vector[kSquare][e], 0);
    if (b.padding > 0) diagonal += b.vector[kPadding][e];
    if (b.empty > 0) diagonal += b.vector[kSlope][e];
    b.vector[kDiagonal][e] = diagonal;
    b.vector[kResidual][e] = soft_load(b, e) - static_cast<float>(b.upper[e]);
    trace += diagonal;
  }
  trace = block_sum(trace, b.float_scratch);
  const float damping = 1e-3f * trace / b.experts + 1e-6f;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.vector[kDiagonal][e] += damping;
    b.bias[e] = 1 / b.vector[kDiagonal][e];
  }
  __syncthreads();
  const int iterations = conjugate_gradients(b, team, hessian);
  __syncthreads();
  float largest = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    largest = fmaxf(largest, fabsf(b.vector[kAnswer][e]));
  }
  largest = block_max(largest, b.float_scratch);
  const double step = largest > 6 ? tau * 6 / largest : tau;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.price[e] += step * b.vector[kAnswer][e];
  }
  normalise_prices(b);
  return iterations;
}

// What the sums of a pass say. True: good enough, or no better in sight.
__device__ inline bool judge(Block& b, Annealing& a, bool newton, double& soft) {
  float spill = 0, over = 0, under = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    spill += fmaxf(0, soft_load(b, e) - static_cast<float>(b.upper[e]));
    over += static_cast<float>(max(0, b.hard[e] - b.upper[e]));
    under += static_cast<float>(max(0, b.lower[e] - b.hard[e]));
  }
  block_sums(spill, over, under, b.float_scratch);
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
  return hard <= a.goal || (newton && a.stalled >= 2);
}

// The next temperature after a Newton step at a pass of soft imbalance `soft`.
__device__ inline void cool(Block& b, Annealing& a, double soft) {
  double factor = soft < 0.04 ? 0.4 : soft < 0.1 ? 0.55 : 1.0;
  if (soft > 0.7 * a.last_soft && soft > 0.03) factor = soft > 0.1 ? 1.6 : 1.0;
  a.last_soft = soft;
  a.tau = fmax(a.tau * factor, b.deviation * 1e-4);
}

template <class M>
__device__ void anneal(Block& b, Team& team, Annealing a) {
  int conjugate = 0, sinkhorns = 0, newtons = 0;
  uint64_t clock = nanoseconds();
  auto lap = [&](int what) {
    const uint64_t now = nanoseconds();
    trace_add(b, team.rank, kTraceDetail + what, now - clock);
    clock = now;
  };
  for (int pass = 0; pass < 40; ++pass) {
    const bool newton = a.sinkhorn_left <= 0;
    int* matrix = b.work.hessian + static_cast<size_t>(b.turn) * b.experts * b.experts;
    if (b.padding > 0 || b.empty > 0) spread_classes(b, a.tau);
    lap(0);
    soft_pass<M>(b, a.tau, newton ? matrix : nullptr);
    lap(newton ? 2 : 1);
    publish_sums(b, team, newton);
    clear_next(b, team, true);
    const Sums sums = finish_pass(b, team);
    lap(3);
    collect_sums(b, team, sums, newton);
    double soft = 0;
    const bool enough = judge(b, a, newton, soft);
    lap(4);
    if (enough) break;
    if (!newton || soft > 0.25) {
      ++sinkhorns;
      sinkhorn_step(b, a.tau);
      lap(5);
      --a.sinkhorn_left;
      if (a.sinkhorn_left > 0) {
        a.tau *= a.ratio;
      } else {
        a.tau = newton ? a.tau * 1.5 : a.newton_tau;
      }
    } else {
      ++newtons;
      conjugate += newton_step(b, team, matrix, a.tau);
      cool(b, a, soft);
      lap(6);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] = b.best[e];
  __syncthreads();
  trace_add(b, team.rank, kTraceSinkhorn, sinkhorns);
  trace_add(b, team.rank, kTraceNewton, newtons);
  trace_add(b, team.rank, kTraceConjugate, conjugate);
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

}  // namespace ballast::exact_cuda
