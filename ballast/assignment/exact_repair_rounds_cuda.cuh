// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_repair_gather_cuda.cuh"

// Rounds of repair: windows about the prices, until the assignment is good enough.
namespace ballast::assignment::exact_cuda {

constexpr int kMaxRounds = 200;
constexpr int kWholeFrom = 12;  // rounds from here on leave nothing of a window out

// Soft prices become quanta.
template <class N>
__device__ inline void round_prices(Problem& p) {
  const double scale = ldexp(1.0, N::bits(p));
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    p.price[e] = rint(fmin(p.price[e] * scale, N::highest_price()));
  }
  if (threadIdx.x == 0) p.exact_scale = ldexp(1.0, N::bits(p) - p.exponent);
  __syncthreads();
}

// And back.
template <class N>
__device__ inline void soften_prices(Problem& p) {
  __syncthreads();
  const double scale = ldexp(1.0, -N::bits(p));
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.price[e] *= scale;
  __syncthreads();
}

// How one round of repair went.
struct Round {
  Sums sums;
  Window window;
  float ceiling;  // no window may reach this far
  int imbalance;  // before the round
  int violations;
  Verdict verdict;
};

// The window for a round: wider than the last, unless that was too much.
__device__ inline Window next_window(Problem& p, const Round& r, int round, int imbalance,
                                     float smallest) {
  const int most = max(p.counted / 4, min(p.counted, 8 * p.experts));
  double want = fmin(8.0 * max(imbalance, p.experts), static_cast<double>(most));
  float least = 0;
  if (round > 0 && r.verdict.large != 0 && r.verdict.moved > 0 && r.verdict.overflow == 0) {
    want = 1;
    least = r.window.reach / 2;
  } else if (round > 0 && round < kWholeFrom && r.window.shorten && r.verdict.moved > 0) {
    want = 1;  // once more with other tokens
  } else if (round > 0 && r.verdict.balanced == 0 && 2 * r.verdict.moved > r.imbalance) {
    least = r.window.reach;  // most of it went: the same again about the new prices
  } else if (round > 0 && r.verdict.overflow == 0) {
    want = fmax(want, r.window.members * 1.5 + 1);
    least = r.window.reach * (r.verdict.balanced != 0 ? 2 : r.verdict.moved > 0 ? 2 : 16);
    least = fmaxf(least, smallest);
  }
  if (p.counted == 0) least = r.ceiling;
  want = fmin(want, static_cast<double>(p.counted));
  Window window = plan_window(p, r.sums, static_cast<int>(want), least, r.ceiling);
  window.merge = window.merge || round > 0 || imbalance > 4 * goal_of(p);
  return window;
}

// Builds a window about p.price, repairs it, and checks the result on all scores.
template <class N, class M>
__device__ void repair_round(Problem& p, Repair& repair, Solution& solution, Team& team, Round& r,
                             int round) {
  collect_loads(p, r.sums);
  const int imbalance = imbalance_of(p, p.hard);
  const auto smallest =
      static_cast<float>(ldexp(1.0, N::bits(p) - 20));  // a millionth of the range
  Window window = next_window(p, r, round, imbalance, smallest);
  const int count = list_entries(p, repair, window);
  if (window.merge) {
    enter_table<N, M>(p, repair, window, count, &r.sums.counts[kLists]);
    team.meet();
    window.salt = round + 1;
    if (round < kWholeFrom) {
      thin_window(window, static_cast<int>(__ldcg(&r.sums.counts[kLists])),
                  max(2 * imbalance, 4 * p.experts));
    }
  }
  write_lists<N, M>(p, repair, solution, team, window, count, round);
  team.meet();
  if (team.rank == 0) repair_window<N>(p, repair, solution, team, r.sums.hard, window, round);
  team.meet();
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.price[e] = __ldcg(&repair.prices[e]);
  if (threadIdx.x == 0) solution.newest = 1 - solution.newest;
  __syncthreads();
  clear_next(p, team);
  if (window.merge) clear_table(p, repair, team);
  exact_pass<N, M>(p, repair, solution, team, false);
  r.sums = finish_pass(p, team);
  r.window = window;
  r.imbalance = imbalance;
  const volatile Verdict* verdict = repair.verdict;
  r.verdict.balanced = verdict->balanced;
  r.verdict.moved = verdict->moved;
  r.verdict.stuck = verdict->stuck;
  r.verdict.spent = verdict->spent;
  r.verdict.large = verdict->large;
  r.verdict.overflow = verdict->overflow == round + 1 ? 1 : 0;
  if (r.verdict.overflow != 0 && window.reach > 0) r.ceiling = window.reach / 8;
  r.violations = static_cast<int>(__ldcg(&r.sums.counts[kViolations]));
}

enum class Outcome { kNotYet, kSolved, kCoarse, kFailed, kSpent };

// Whether the assignment that the last pass valued is as good as the caller asks.
__device__ inline bool is_within_gap(Problem& p, const Solution& solution, const Team& team) {
  const double primal = sum_parts(p, solution, team, kPartPrimal);  // -inf: a forbidden pair
  const double missing = sum_parts(p, solution, team, kPartSlack) / p.exact_scale;
  const double blind = sum_parts(p, solution, team, kPartBlind);
  return missing <= p.arguments->gap * (primal + missing - blind);
}

// Whether the last round was good enough: for the caller, and for these quanta.
template <class N>
__device__ Outcome outcome_of(Problem& p, const Solution& solution, const Team& team,
                              const Round& r) {
  const bool narrow = sizeof(typename N::Cost) == 4;
  if (r.verdict.stuck != 0) return Outcome::kFailed;
  const bool spent = r.verdict.spent != 0;
  if (r.verdict.balanced == 0 && spent) return Outcome::kSpent;
  if (r.verdict.balanced == 0) {
    return narrow && r.window.reach >= r.ceiling && r.ceiling >= N::kCeiling ? Outcome::kCoarse
                                                                             : Outcome::kNotYet;
  }
  const double slack = static_cast<double>(__ldcg(&r.sums.counts[kSlackSum])) / 64;
  const double norm = static_cast<double>(__ldcg(&r.sums.counts[kNorm])) * 1048576;
  if (r.violations == 0 && (!narrow || slack <= 4e-10 * norm)) return Outcome::kSolved;
  if (p.arguments->gap > 0 && is_within_gap(p, solution, team)) return Outcome::kSolved;
  if (spent) return Outcome::kSpent;
  return r.violations == 0 ? Outcome::kCoarse : Outcome::kNotYet;
}

// Whether prices are too far apart for padding and empty places in 32 bits.
__device__ inline bool prices_spread(Problem& p) {
  if (p.padding == 0 && p.empty == 0) return false;
  bool far = false;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) far = far || p.price[e] > 268435456.0;
  return __syncthreads_or(far) != 0;
}

// From soft prices to an optimal assignment, in quanta of N. `place` is then that assignment.
template <class N, class M>
__device__ Outcome repair_all(Problem& p, Repair& repair, Solution& solution, Team& team) {
  round_prices<N>(p);
  clear_next(p, team);
  exact_pass<N, M>(p, repair, solution, team, true);
  Round r{};
  r.ceiling = fminf(bin_end(kBins - 1), N::kCeiling);
  r.sums = finish_pass(p, team);
  Outcome outcome = Outcome::kNotYet;
  for (int round = 0; round < kMaxRounds && outcome == Outcome::kNotYet; ++round) {
    if (sizeof(typename N::Cost) == 4 && prices_spread(p)) return Outcome::kCoarse;
    repair_round<N, M>(p, repair, solution, team, r, round);
    outcome = outcome_of<N>(p, solution, team, r);
  }
  if (outcome == Outcome::kFailed && p.forbid != 0 && threadIdx.x == 0) p.infeasible = 1;
  __syncthreads();
  return outcome;
}

// The slow way for the rare case, apart from the rest so that it takes no registers there.
template <class M>
__noinline__ __device__ Outcome repair_wide(Problem& p, Repair& repair, Solution& solution,
                                            Team& team) {
  return repair_all<Wide, M>(p, repair, solution, team);
}

}  // namespace ballast::assignment::exact_cuda
