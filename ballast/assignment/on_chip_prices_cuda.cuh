// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_curvature_cuda.cuh"
#include "ballast/assignment/on_chip_load_cuda.cuh"
#include "ballast/assignment/on_chip_look_cuda.cuh"

// Prices at which the tokens' best experts are nearly balanced: a start from the scores' means and
// deviations, a few Sinkhorn steps at falling temperature, then Newton's method.
namespace ballast::assignment::on_chip {

constexpr int kSinkhornPasses = 3;
// What is allowed of passes over the scores and of sweeps over the pairs that are exchanged.
struct Effort {
  int passes, sweeps, rounds;
};
constexpr Effort kBounded{40, 400, 4};    // with a gap allowed: a step must not wait for odd scores
constexpr Effort kThorough{40, 1600, 8};  // collapsed scores need as much
// How fast it may cool, and how many times the goal may be missed by for the step after it to be
// the last. Measured: steps with few experts are cheap beside the exchanges they spare, and the
// other way round.
template <int kExperts>
constexpr float kFastest = kExperts <= 32 ? 0.3f : 0.4f;
template <int kExperts>
constexpr int kLastStep = kExperts <= 64 ? 3 : 1;
constexpr float kLog2e = 1.44269504f;
constexpr float kSinkhornFirst = 0.5f, kNewtonFirst = 0.1f;  // temperatures, in deviations
// For a few moves at a small loss, in deviations: the first of Newton's steps, where Sinkhorn's
// have made loads nearly even.
constexpr float kNearbyFirst = 0.06f;

// One pass at c.price: sums of the probabilities exp((score - price) / tau), in c.load. kCurve:
// also the rows of probabilities, in the arena, each row's best expert, in c.own, and the loads by
// these, in c.hard. factor: log2(e) / tau.
template <bool kCurve, int kExperts, Meeting kMeeting>
__device__ void soft_pass(Chip<kExperts, kMeeting>& c, float factor) {
  constexpr int kLanes = Layout<kExperts>::kLanes, kTogether = Layout<kExperts>::kTogether;
  const int lane = threadIdx.x % kLanes, padded = (c.count + 15) / 16 * 16;
  float price[kValues], load[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    price[i] = c.price[expert_at<kExperts>(lane, i)];
    load[i] = 0;
  }
  if (kCurve) {
    for (int e = threadIdx.x; e < kExperts; e += kThreads) c.counts[e] = 0;
    __syncthreads();
  }
  for (int base = 0; base < c.count; base += kTogether) {
    const int row = base + threadIdx.x / kLanes;
    float q[kValues];
    read_row(c, row, q);
    float best = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      q[i] -= price[i];
      best = fmaxf(best, q[i]);
    }
    const float top = lanes_max(best, kLanes);
    if (kCurve) {
      unsigned at = 0;
#pragma unroll
      for (int i = 0; i < kValues; ++i) at |= q[i] == top ? 1u << i : 0u;
      const unsigned tied = __ballot_sync(kAll, at != 0) & row_lanes<kExperts>();
      if (row < c.count && static_cast<int>(threadIdx.x % 32) == choose_bit(tied, c.first + row)) {
        const int own = expert_at<kExperts>(lane, choose_bit(at, c.first + row));
        c.own[row] = static_cast<uint8_t>(own);
        atomicAdd(&c.counts[own], 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      q[i] = fast_exp2((q[i] - top) * factor);
      sum += q[i];
    }
    sum = lanes_sum(sum, kLanes);
    const float inverse = row < c.count ? __fdividef(1, sum) : 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      q[i] *= inverse;
      load[i] += q[i];
    }
    if (kCurve && row < padded) stage_row(c, row, q);
  }
  leave_columns(c, load);
  share_sums(c, kCurve);
}

struct Annealing {
  float tau;
  float last_soft = 9;
  float trace = 0;  // of the curvature at the last Newton step's tau
  float trace_tau = 0;
  int warmed = 0;  // how many times it was too cold
  int stalled = 0;
  int best_hard = 0x7fffffff;
  int passes = 0;
  int newtons = 0;
  int failed = -1;  // newtons after which a few moves did not suffice
  bool warm = false;
};

// What is above experts' shares: tokens by their best expert, and by probabilities, of all.
template <int kExperts, Meeting kMeeting>
__device__ inline int hard_imbalance(const Chip<kExperts, kMeeting>& c) {
  int over = 0;
#pragma unroll 1
  for (int e = threadIdx.x % 32; e < c.experts; e += 32) over += max(0, c.hard[e] - c.even);
  return lanes_sum(over, 32);
}
template <int kExperts, Meeting kMeeting>
__device__ inline float soft_imbalance(const Chip<kExperts, kMeeting>& c) {
  float over = 0;
#pragma unroll 1
  for (int e = threadIdx.x % 32; e < c.experts; e += 32)
    over += fmaxf(0, c.load[e] - static_cast<float>(c.even));
  return lanes_sum(over, 32) / static_cast<float>(c.tokens);
}

template <int kExperts, Meeting kMeeting>
__device__ inline void sinkhorn_step(Chip<kExperts, kMeeting>& c, float tau) {
  if (static_cast<int>(threadIdx.x) < c.experts) {
    const float load = fmaxf(c.load[threadIdx.x], 1e-3f);
    c.price[threadIdx.x] += tau * logf(load / static_cast<float>(c.even));
  }
  __syncthreads();
}

// How near to balance prices shall be. kNearby: near enough for a few moves at a small loss.
enum class Aim { kExchanges, kNearby };

// The next temperature after one of Sinkhorn's steps at a pass of soft imbalance `soft`.
__device__ inline void cool_sinkhorn(Annealing& a, int left, float soft, Aim aim, float deviation) {
  if (left > 0) {
    a.tau *= powf(kNewtonFirst / kSinkhornFirst, 1.0f / (kSinkhornPasses - 1));
  } else if (aim == Aim::kNearby && soft <= 0.05f) {
    a.tau = kNearbyFirst * deviation;
  }
}

// The next temperature after a Newton step at a pass of soft imbalance `soft`. Where the step asked
// for a large change it was too cold: of some experts too few tokens are near another one. From
// the third time on it cools slowly, so as not to get there for ever.
__device__ inline void cool(Annealing& a, float soft, const Step& step, float fastest, Aim aim,
                            float floor) {
  constexpr float kWarmer = 1.6f, kSlowly = 0.65f;
  float factor = soft < 0.04f ? fastest : soft < 0.1f ? 0.55f : 1.0f;
  if (aim == Aim::kNearby && soft < 0.13f) factor = soft < 0.08f ? 0.4f : 0.55f;
  if (soft > 0.7f * a.last_soft && soft > 0.03f)
    factor = soft > 0.1f || step.largest > 1.5f * kLargeChange ? kWarmer : 1.0f;
  if (step.largest > 2 * kLargeChange)
    factor = fmaxf(factor, step.largest > 7 * kLargeChange ? kWarmer : 1.0f);
  if (factor > 1) ++a.warmed;
  if (a.warmed > 2) factor = fmaxf(factor, kSlowly);
  a.last_soft = soft;
  a.tau = fmaxf(a.tau * factor, floor);
}

// How far loads are from even by chance, where tokens choose at random.
template <int kExperts, Meeting kMeeting>
__device__ inline float chance(const Chip<kExperts, kMeeting>& c) {
  return sqrtf(static_cast<float>(c.experts) * static_cast<float>(c.tokens));
}

// Whether a step of Newton's after a pass has led near balance. The step evens the probabilities.
// Before it the tokens' best experts are more uneven than these: about that much stays. After a
// large change nothing is known.
template <int kExperts, Meeting kMeeting>
__device__ inline bool leads_near(const Chip<kExperts, kMeeting>& c, const Annealing& a, int hard,
                                  float soft, const Step& step) {
  const float stays = static_cast<float>(hard) - soft * static_cast<float>(c.tokens);
  return soft <= 0.08f && a.tau < 1.1f * kNewtonFirst * c.deviation && stays <= 0.14f * chance(c) &&
         step.largest <= kLargeChange;
}

// One of Sinkhorn's steps; `left`: how many, with it.
template <int kExperts, Meeting kMeeting>
__device__ inline void sinkhorn_pass(Chip<kExperts, kMeeting>& c, Annealing& a, int left, Aim aim) {
  if (left == kSinkhornPasses) {
    if (threadIdx.x < kExperts) c.price[threadIdx.x] = c.cold_price[threadIdx.x];
    a.tau = kSinkhornFirst * c.deviation;
    __syncthreads();
  }
  soft_pass<false>(c, kLog2e / a.tau);
  const float soft = soft_imbalance(c);
  sinkhorn_step(c, a.tau);
  cool_sinkhorn(a, left - 1, soft, aim, c.deviation);
}

template <int kExperts, Meeting kMeeting>
__device__ inline void keep_prices(Chip<kExperts, kMeeting>& c) {
  if (threadIdx.x < kExperts) c.best_price[threadIdx.x] = c.price[threadIdx.x];
}

// Keeps the prices with fewest tokens at wrong experts, of which a pass has found `hard`. True: no
// better is in sight.
template <int kExperts, Meeting kMeeting>
__device__ inline bool is_stalled(Chip<kExperts, kMeeting>& c, Annealing& a, int hard, float soft) {
  if (hard < a.best_hard) {
    a.stalled = hard < 0.8f * static_cast<float>(a.best_hard) ? 0 : a.stalled + 1;
    a.best_hard = hard;
    keep_prices(c);
  } else if (soft < 0.02f) {
    ++a.stalled;
  }
  // While very many tokens are at wrong experts it is still too warm to tell those apart that are
  // alike, however even the probabilities are.
  const int patience = hard > c.tokens / 20 ? 6 : 2;
  return a.stalled >= patience;
}

// After the first pass, for which each block took its own tokens' deviation: that of all. Newton's
// step after it takes what blocks of somewhat other temperatures have added.
template <int kExperts, Meeting kMeeting>
__device__ inline void take_deviation(Chip<kExperts, kMeeting>& c, Annealing& a) {
  const float deviation = deviation_of(c, c.squares, c.tokens);
  a.tau = kNewtonFirst * deviation;
  if (threadIdx.x == 0) c.deviation = deviation;
  __syncthreads();
}

// Brings c.price near balance, until at most `goal` tokens are above their expert's share or no
// better is in sight. c.best_price: the prices with fewest. Near the goal the last step's result is
// not looked at. False: start prices do not suit the scores.
template <int kExperts, Meeting kMeeting>
__device__ bool find_prices(Chip<kExperts, kMeeting>& c, Annealing& a, int goal, Aim aim,
                            int most) {
  // What chance alone leaves of start prices that suit other tokens of the same sort, and more.
  const float strange =
      fmaxf(0.12f, 0.8f * sqrtf(static_cast<float>(c.experts) / static_cast<float>(c.tokens)));
  if (a.passes == 0) a.tau = kNewtonFirst * c.deviation;
  int left = a.warm || a.passes > 0 ? 0 : kSinkhornPasses;  // Sinkhorn steps from the cold start
#pragma unroll 1
  for (; a.passes < most; ++a.passes) {
    if (left > 0) {
      sinkhorn_pass(c, a, left--, aim);
      continue;
    }
    const bool begins = a.warm && a.passes == 0;  // nothing is known of the scores yet
    const int turn = c.turn;
    if (begins) tell_seen(c);
    soft_pass<true>(c, kLog2e / a.tau);
    const int hard = hard_imbalance(c);
    const float soft = soft_imbalance(c);
    if (begins) {
      if (!(hear_seen(c, turn) && start_fits(c) && soft <= strange)) return false;
      take_deviation(c, a);
    }
    if (is_stalled(c, a, hard, soft) || hard <= goal) break;
    // A few moves at these prices take less time than a step before them.
    bool near = aim == Aim::kNearby && a.newtons > 0 && a.newtons != a.failed &&
                static_cast<float>(hard) <= 0.15f * chance(c);
    if (soft > 0.25f && !near) {
      sinkhorn_step(c, a.tau);
      a.tau *= 1.5f;
    } else if (!near) {
      const Step step = newton_step(c, a.tau);
      a.trace = step.trace;
      a.trace_tau = a.tau;
      ++a.newtons;
      near = (aim == Aim::kNearby && leads_near(c, a, hard, soft, step)) ||
             hard <= kLastStep<kExperts> * goal;
      cool(a, soft, step, kFastest<kExperts>, aim, 1e-6f * c.deviation);
    }
    if (near) {
      keep_prices(c);
      ++a.passes;
      break;
    }
  }
  __syncthreads();
  return true;
}

}  // namespace ballast::assignment::on_chip
