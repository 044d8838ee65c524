// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "ballast/assignment/on_chip_kernels_cuda.cuh"
#include "ballast/assignment/on_chip_load_cuda.cuh"
#include "ballast/assignment/on_chip_nearby_cuda.cuh"
#include "ballast/assignment/on_chip_output_cuda.cuh"
#include "ballast/assignment/on_chip_repair_cuda.cuh"
#include "ballast/assignment/on_chip_rounding_cuda.cuh"

// The phases one after another, as the blocks of a team run them.
namespace ballast::assignment::on_chip {

// Takes c.best_price, as floats.
template <int kExperts, Meeting kMeeting>
__device__ inline void take_best_price(Chip<kExperts, kMeeting>& c) {
  if (threadIdx.x < kExperts) {
    c.price[threadIdx.x] = c.best_price[threadIdx.x];
    c.exact_price[threadIdx.x] = c.price[threadIdx.x];
  }
  __syncthreads();
}

// About how far from their best experts as many tokens are as `want`.
template <int kExperts, Meeting kMeeting>
__device__ inline float reach_of(const Chip<kExperts, kMeeting>& c, const Annealing& a, int want) {
  return a.trace > 0 ? a.trace_tau * static_cast<float>(want) / a.trace : 0.05f * c.deviation;
}

// From c.best_price to the optimum; `reach`: of the first exchanges. False: that was not reached;
// c.own and c.hard are of c.quanta.
template <int kExperts, Meeting kMeeting>
__device__ inline bool improve(Chip<kExperts, kMeeting>& c, float reach, Effort effort) {
  take_best_price(c);
  if (!round_prices(c)) return false;
  const bool optimal = repair(c, reach * c.exact_scale, effort);
  if (threadIdx.x < kExperts)
    c.exact_price[threadIdx.x] = static_cast<double>(c.quanta[threadIdx.x]) / c.exact_scale;
  __syncthreads();
  return optimal;
}

// The same where few scores need it: not a part of the kernel that all go through.
template <int kExperts, Meeting kMeeting>
__noinline__ __device__ bool improve_apart(Chip<kExperts, kMeeting>& c, float reach) {
  return improve(c, reach, kBounded);
}

template <int kExperts, Meeting kMeeting>
__device__ inline float exchange_reach(const Chip<kExperts, kMeeting>& c, const Annealing& a) {
  return reach_of(c, a, 5 * max(a.best_hard, c.experts));
}

// From c.best_price to a balanced assignment, by a few moves at a small loss. False: too many
// tokens are at wrong experts, or find no way.
template <int kExperts, Meeting kMeeting>
__device__ inline bool move_nearby(Chip<kExperts, kMeeting>& c, const Annealing& a) {
  take_best_price(c);
  // About a third of the tokens that were at wrong experts before the last step still are. Blocks
  // have equal parts of the lists, but not equally many pairs, and longer lists take longer rounds:
  // a third is filled. Of many tokens more are at wrong experts, and blocks are more alike.
  const int most =
      max(kPairs / 3, static_cast<int>(fminf(1.7f * chance(c), 0.6f * static_cast<float>(kPairs))));
  const int want = min(20 * max(a.best_hard / 3, c.experts), most);
  return exchange_nearby(c, reach_of(c, a, want));
}

enum class Ending {
  kStrange,  // the start prices are of other scores
  kOpen,     // the optimum was not reached: the general solver must go on
  kBeyond,   // balanced, with a gap beyond what is allowed
  kReached
};

// c.own, whose worth is in c.worth, is final.
template <int kExperts, Meeting kMeeting>
__device__ Ending find_optimum(Chip<kExperts, kMeeting>& c, Annealing& a, int goal) {
  if (!find_prices(c, a, goal, Aim::kExchanges, kThorough.passes)) return Ending::kStrange;
  if (!improve(c, exchange_reach(c, a), kThorough)) return Ending::kOpen;
  value_result(c);
  // Quanta that are too coarse for these scores leave slack: the general solver has finer ones.
  return c.worth[kSlack] <= 4e-10 * c.worth[kNorm] ? Ending::kReached : Ending::kOpen;
}

// The same within the gap, or where the work that is allowed leads to. Ordinary scores get to the
// gap by the short way after one or two of Newton's steps; others go on from there.
template <int kExperts, Meeting kMeeting>
__device__ Ending find_within(Chip<kExperts, kMeeting>& c, Annealing& a, int goal, double gap) {
  constexpr int kShortTries = 4;
#pragma unroll 1
  for (int tries = 0;; ++tries) {
    const bool hopes = tries < kShortTries;
    if (!find_prices(c, a, goal, hopes ? Aim::kNearby : Aim::kExchanges, kBounded.passes))
      return Ending::kStrange;
    const bool near = hopes && a.newtons != a.failed;
    a.failed = a.newtons;
    if (near && !move_nearby(c, a)) continue;
    if (!near && !improve_apart(c, exchange_reach(c, a))) round_off(c);
    value_result(c);
    if (is_within(c, gap)) return Ending::kReached;
    if (!near) return Ending::kBeyond;
  }
}

template <Wish kWish, int kExperts, Meeting kMeeting>
__device__ inline Ending solve(Chip<kExperts, kMeeting>& c, Annealing& a, double gap) {
  const int goal = max(1, max(c.experts / 5, c.tokens / 1000));
  if constexpr (kWish == Wish::kExact) {
    return find_optimum(c, a, goal);
  } else {
    return find_within(c, a, goal, gap);
  }
}

template <Wish kWish, int kExperts, Meeting kMeeting>
__device__ inline void solve_problem(Chip<kExperts, kMeeting>& c, const Arguments& a, int problem) {
  open_problem(c);
  begin_team(c);
  const double* start = a.problems.start_prices;
  if (start != nullptr) start += problem * a.problems.start_stride;
  bool warm = load_start(c, start);
  load_scores(c, a.problems, problem);
  __syncthreads();
  await_team(c);
  Refused refused;
  Ending ending = Ending::kStrange;
  // Once more where the start was no good, and where scores were mended or lifted.
  while (ending == Ending::kStrange) {
    Annealing annealing;
    annealing.warm = std::exchange(warm, false);
    if (!annealing.warm) {
      if (!first_look(c, c.direction, a.quantile)) {
        refused = mend_scores(c);
        continue;
      }
      if (lift_scores(c)) continue;
    }
    ending = solve<kWish>(c, annealing, a.options.gap);
    if (ending == Ending::kStrange) meet(c);  // all have read what first_look writes anew
  }
  const bool solved = ending != Ending::kOpen;
  if (solved) {
    write_places(c, a.results, problem);
    if (c.rank == 0)
      write_status(
          c, a, problem, refused,
          ending == Ending::kReached ? AssignmentStatus::kOk : AssignmentStatus::kNotConverged);
  }
  if (c.rank == 0 && threadIdx.x == 0) a.solved[problem] = solved ? 1 : 0;
  meet(c);  // nobody's memory goes, or changes, while others read it
}

template <int kExperts, Wish kWish, Meeting kMeeting>
__global__ void __launch_bounds__(kThreads, 1) on_chip_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  auto& c = *reinterpret_cast<Chip<kExperts, kMeeting>*>(memory);
  open_team(c, a);
  const int team = static_cast<int>(blockIdx.x) / a.blocks;
  if constexpr (kMeeting == Meeting::kCluster) {
    solve_problem<kWish>(c, a, team);  // one for each
  } else {
#pragma unroll 1
    for (int problem = team; problem < a.problems.problems; problem += a.teams)
      solve_problem<kWish>(c, a, problem);
  }
}

template <int kExperts, Wish kWish, Meeting kMeeting>
const void* kernel_of() {
  return reinterpret_cast<const void*>(&on_chip_kernel<kExperts, kWish, kMeeting>);
}

}  // namespace ballast::assignment::on_chip
