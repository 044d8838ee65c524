// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_kernels_cuda.cuh"
#include "ballast/assignment/exact_solve_cuda.cuh"

namespace ballast::assignment::exact_cuda {

__device__ inline void collect_loads(Block& b, const Sums& sums) {
  __syncthreads();
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.hard[e] = __ldcg(&sums.hard[e]);
}

// First look, scales, start prices. Returns the imbalance at them; `warm`: they are the caller's.
template <class M>
__device__ int look(Block& b, Team& team, bool& warm) {
  const CudaProblems& p = b.arguments->problems;
  const double* start = p.start_prices == nullptr
                            ? nullptr
                            : p.start_prices + static_cast<int64_t>(b.problem) * b.experts;
  first_look<M>(b, start);
  __syncthreads();
  const Sums mine = sums_of(b.work, b.experts, b.turn);
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    if (b.hard[e] != 0) atomicAdd(&mine.hard[e], b.hard[e]);
  }
  if (threadIdx.x == 0) {
    const int counted = b.int_scratch[0];
    b.work.block_padding[team.rank] = b.rows.last - b.rows.first - counted;
    atomicAdd(&b.work.head->counted, static_cast<unsigned>(counted));
  }
  clear_next(b, team, true);
  clear_table(b, team);
  const Sums sums = finish_pass(b, team);
  if (threadIdx.x == 0) set_scales(b);
  __syncthreads();
  use_stage<M>(b);
  value_blindly<M>(b, team);
  sample_deviation(b);
  warm = load_start(b, start);
  collect_loads(b, sums);
  return imbalance_of(b, b.hard);
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
__device__ inline Window next_window(Block& b, const Round& r, int round, int imbalance,
                                     float smallest) {
  const int most = max(b.counted / 4, min(b.counted, 8 * b.experts));
  double want = fmin(8.0 * max(imbalance, b.experts), static_cast<double>(most));
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
  if (b.counted == 0) least = r.ceiling;
  want = fmin(want, static_cast<double>(b.counted));
  Window window = plan_window(b, r.sums, static_cast<int>(want), least, r.ceiling);
  window.merge = window.merge || round > 0 || imbalance > 4 * goal_of(b);
  return window;
}

// Builds a window about b.price, repairs it, and checks the result on all scores.
template <class N, class M>
__device__ void repair_round(Block& b, Team& team, Round& r, int round) {
  collect_loads(b, r.sums);
  const int imbalance = imbalance_of(b, b.hard);
  const auto smallest =
      static_cast<float>(ldexp(1.0, N::bits(b) - 20));  // a millionth of the range
  Window window = next_window(b, r, round, imbalance, smallest);
  const int count = list_entries(b, window);
  if (window.merge) {
    enter_table<N, M>(b, window, count, &r.sums.counts[kLists]);
    team.meet();
    window.salt = round + 1;
    if (round < kWholeFrom) {
      thin_window(window, static_cast<int>(__ldcg(&r.sums.counts[kLists])),
                  max(2 * imbalance, 4 * b.experts));
    }
  }
  write_lists<N, M>(b, team, window, count, round);
  team.meet();
  if (team.rank == 0) repair<N>(b, team, r.sums.hard, window, round);
  team.meet();
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] = __ldcg(&b.work.prices[e]);
  if (threadIdx.x == 0) b.place = 1 - b.place;
  __syncthreads();
  clear_next(b, team, false);
  if (window.merge) clear_table(b, team);
  exact_pass<N, M>(b, team, false);
  r.sums = finish_pass(b, team);
  r.window = window;
  r.imbalance = imbalance;
  const volatile Verdict* verdict = b.work.verdict;
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
__device__ inline bool is_within_gap(Block& b, const Team& team) {
  const double primal = sum_parts(b, team, kPartPrimal);  // -inf: a forbidden pair
  const double missing = sum_parts(b, team, kPartSlack) / b.exact_scale;
  const double blind = sum_parts(b, team, kPartBlind);
  return missing <= b.arguments->gap * (primal + missing - blind);
}

// Whether the last round was good enough: for the caller, and for these quanta.
template <class N>
__device__ Outcome outcome_of(Block& b, const Team& team, const Round& r) {
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
  if (b.arguments->gap > 0 && is_within_gap(b, team)) return Outcome::kSolved;
  if (spent) return Outcome::kSpent;
  return r.violations == 0 ? Outcome::kCoarse : Outcome::kNotYet;
}

// Whether prices are too far apart for padding and empty places in 32 bits.
__device__ inline bool prices_spread(Block& b) {
  if (b.padding == 0 && b.empty == 0) return false;
  bool far = false;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) far = far || b.price[e] > 268435456.0;
  return __syncthreads_or(far) != 0;
}

// From soft prices to an optimal assignment, in quanta of N. `place` is then that assignment.
template <class N, class M>
__device__ Outcome repair_all(Block& b, Team& team) {
  round_prices<N>(b);
  clear_next(b, team, false);
  exact_pass<N, M>(b, team, true);
  Round r{};
  r.ceiling = fminf(bin_end(kBins - 1), N::kCeiling);
  r.sums = finish_pass(b, team);
  Outcome outcome = Outcome::kNotYet;
  for (int round = 0; round < kMaxRounds && outcome == Outcome::kNotYet; ++round) {
    if (sizeof(typename N::Cost) == 4 && prices_spread(b)) return Outcome::kCoarse;
    repair_round<N, M>(b, team, r, round);
    outcome = outcome_of<N>(b, team, r);
  }
  if (outcome == Outcome::kFailed && b.forbid != 0 && threadIdx.x == 0) b.infeasible = 1;
  __syncthreads();
  return outcome;
}

// The slow way for the rare case, apart from the rest so that it takes no registers there.
template <class M>
__noinline__ __device__ Outcome repair_wide(Block& b, Team& team) {
  return repair_all<Wide, M>(b, team);
}

// Prices and assignment; false if it did not come to an end.
template <class M>
__device__ bool solve(Block& b, Team& team) {
  bool warm = false;
  const int imbalance = look<M>(b, team, warm);
  if (b.counted > 0 && b.range > 0) {
    const Annealing annealing = plan_annealing(b, imbalance, warm);
    if (imbalance > annealing.goal) anneal<M>(b, team, annealing);
  }
  if (b.forbid == 0) {
    const Outcome outcome = repair_all<Narrow, M>(b, team);
    if (outcome == Outcome::kSolved || outcome == Outcome::kSpent)
      return outcome == Outcome::kSolved;
    soften_prices<Narrow>(b);
  }
  return repair_wide<M>(b, team) == Outcome::kSolved;
}

__device__ inline void write_status(Block& b, const Team& team, bool solved, const int* loads) {
  const CudaAssignments& results = b.arguments->results;
  const double unit = 1 / (b.exact_scale * b.rows.lift);
  bool bad = false;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    const int load = __ldcg(&loads[e]);
    bad = bad || load < b.lower[e] || load > b.upper[e];
    b.hard[e] = load - __ldcg(&b.work.padding_at[e]);
    results.prices[static_cast<int64_t>(b.problem) * b.experts + e] = b.price[e] * unit;
  }
  bad = __syncthreads_or(bad) != 0;
  const double primal = sum_parts(b, team, kPartPrimal) / b.rows.lift;
  const double slack = (sum_parts(b, team, kPartSlack) + gap_of_loads(b, b.hard)) * unit;
  const double blind = sum_parts(b, team, kPartBlind) / b.rows.lift;
  if (threadIdx.x != 0) return;
  const Head& head = *b.work.head;
  AssignmentStatus status;
  status.code = solved ? AssignmentStatus::kOk : AssignmentStatus::kNotConverged;
  if (b.infeasible != 0) status.code = AssignmentStatus::kInfeasible;
  const NonFinite rule = b.arguments->problems.non_finite;
  if (head.first_bad != 0 && rule != NonFinite::kLowest) {
    status.code = AssignmentStatus::kNonFinite;
    status.token = static_cast<int>(~head.first_bad / b.experts);
    status.expert = static_cast<int>(~head.first_bad % b.experts);
  }
  status.valid = !bad && b.infeasible == 0 && isfinite(primal);  // -inf: a forbidden pair
  status.replaced = rule == NonFinite::kLowest ? static_cast<int64_t>(head.replaced) : 0;
  status.primal = primal;
  status.gap = slack;
  status.dual = primal + slack;
  status.blind = blind;
  results.status[b.problem] = status;
}

// Recomputes what an assignment is worth after it was changed by force.
template <class M>
__noinline__ __device__ void value_again(Block& b, Team& team) {
  clear_next(b, team, false);
  exact_pass<Wide, M>(b, team, false);
  finish_pass(b, team);
}

template <class M>
__device__ void solve_problem(Block& b, Team& team, int problem) {
  if (threadIdx.x == 0) open_rows(b, team, problem);
  __syncthreads();
  open_bounds(b);
  const bool solved = solve<M>(b, team);
  if (!solved) {
    if (team.rank == 0) force_bounds(b);
    team.meet();
    value_again<M>(b, team);
  }
  if (b.padding == 0 && team.rank == 0) {
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.work.padding_at[e] = 0;
  }
  if (b.padding > 0) place_padding(b, team);
  int* counts = reinterpret_cast<int*>(b.arena);
  int* loads = b.arguments->results.loads + static_cast<int64_t>(problem) * b.experts;
  count_runs(b, team, counts);
  team.meet();
  sum_runs(b, team, loads);
  team.meet();
  write_order(b, team, counts, loads);
  if (team.rank == 0) write_status(b, team, solved, loads);
}

// What a block does from the launch to the end.
template <class M>
__device__ void run(const Arguments& arguments, char* memory) {
  Block& b = *reinterpret_cast<Block*>(memory);
  const Shape& shape = arguments.shape;
  const int slot = blockIdx.x / shape.team;
  if (slot >= shape.teams) return;
  char* base = arguments.workspace + slot * arguments.workspace_stride;
  if (threadIdx.x == 0) {
    open_block<M>(b, arguments, memory);
    b.work = lay_out(shape, base);
  }
  __syncthreads();
  Team team{b.work.counter, 0, shape.team, static_cast<int>(blockIdx.x) % shape.team};
  for (int problem = slot; problem < arguments.problems.problems; problem += shape.teams) {
    if (problem != slot) {
      team.meet();
      auto* words = reinterpret_cast<int*>(b.work.head);
      const auto count = (b.work.cleared - 256) / sizeof(int);
      for (size_t i = team.rank * blockDim.x + threadIdx.x; i < count;
           i += static_cast<size_t>(team.size) * blockDim.x) {
        words[i] = 0;
      }
      team.meet();
    }
    solve_problem<M>(b, team, problem);
  }
}

template <int C, int L>
__global__ void __launch_bounds__(kThreads, 1) exact_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) char memory[];
  run<Map<C, L>>(a, memory);
}

template <int C, int L>
const void* kernel_of() {
  return reinterpret_cast<const void*>(&exact_kernel<C, L>);
}

}  // namespace ballast::assignment::exact_cuda
