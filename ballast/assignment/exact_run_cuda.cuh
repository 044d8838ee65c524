// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_kernels_cuda.cuh"
#include "ballast/assignment/exact_output_cuda.cuh"
#include "ballast/assignment/exact_prices_anneal_cuda.cuh"
#include "ballast/assignment/exact_repair_rounds_cuda.cuh"
#include "ballast/assignment/exact_scan_look_cuda.cuh"

// The phases one after another, as the blocks of a team run them.
namespace ballast::assignment::exact_cuda {

constexpr size_t kMostStaged = 131072;  // bytes of scores that a block keeps in shared memory

// `base`: the team's device memory.
template <class M>
__device__ inline void open_block(Block& b, const Arguments& arguments, char* memory, char* base) {
  auto& [p, w] = b;
  const int e = arguments.problems.experts;
  char* at = memory + (sizeof(Block) + 15) / 16 * 16;
  w = lay_out(arguments.shape, base);
  p.passes = w.passes;
  p.arguments = &arguments;
  p.experts = e;
  p.price = from_arena<double>(at, e);
  w.prices.best = from_arena<double>(at, e);
  w.prices.bias = from_arena<float>(at, e);
  float** vectors[] = {&w.prices.direction, &w.prices.product, &w.prices.padding, &w.prices.empty,
                       &w.prices.slope,     &w.prices.load,    &w.prices.squares};
  for (float** vector : vectors) *vector = from_arena<float>(at, e);
  int** arrays[] = {&p.hard, &w.prices.soft, &w.prices.square, &p.lower, &p.upper};
  for (int** array : arrays) *array = from_arena<int>(at, e);
  w.output.begin = w.prices.soft;  // which nobody needs any more by then
  w.prices.heavy = from_arena<Heavy>(at, blockDim.x / 32 * M::kTogether);
  const size_t size = arguments.problems.type == ScoreType::kFloat32 ? 4 : 2;
  const size_t bytes = size * arguments.shape.chunk * M::kWidth;
  p.rows.stage = bytes <= kMostStaged ? from_arena<char>(at, bytes) : nullptr;
  p.scratch.arena = at;
  p.scratch.arena_bytes = static_cast<int>(arguments.shared_bytes - (at - memory));
}

__device__ inline void open_rows(Block& b, const Team& team, int problem) {
  auto& [p, w] = b;
  const CudaProblems& given = p.arguments->problems;
  const Shape& shape = p.arguments->shape;
  const size_t size = given.type == ScoreType::kFloat32 ? 4 : 2;
  p.number = problem;
  Rows& rows = p.rows;
  rows.data = static_cast<const char*>(given.scores) + size * problem * given.problem_stride;
  rows.counted = given.counted == nullptr
                     ? nullptr
                     : given.counted + static_cast<int64_t>(problem) * given.tokens;
  rows.token_stride = given.token_stride;
  rows.expert_stride = given.expert_stride;
  rows.type = given.type;
  rows.tokens = given.tokens;
  rows.experts = given.experts;
  rows.first = min(given.tokens, team.rank * shape.chunk);
  rows.last = min(given.tokens, rows.first + shape.chunk);
  const auto address = reinterpret_cast<uintptr_t>(rows.data);
  const bool fours = given.expert_stride == 1 && given.experts % 4 == 0 &&
                     given.token_stride % 4 == 0 && address % (4 * size) == 0;
  rows.base = fours ? static_cast<const char*>(rows.data) : nullptr;
  rows.pitch = static_cast<int64_t>(size) * given.token_stride;
  rows.origin = 0;
  rows.mend = 0;
  rows.lift = 1;
  rows.lowest = 0;
  p.passes.turn = w.solution.newest = p.infeasible = p.forbid = 0;
  p.scratch.ints[0] = 0;
  int bits = 0;
  while (shape.chunk >> bits != 0) ++bits;
  w.prices.fixed_bits = max(0, min(24, 30 - bits));
  bits = 0;
  while (given.tokens >> bits != 0) ++bits;
  w.prices.curve_bits = max(0, min(24, 31 - bits));
  const int64_t products = static_cast<int64_t>(given.tokens) * given.experts * given.experts;
  w.prices.spread_every = static_cast<int>(products >> 23) | 1;
  const long long most = p.arguments->max_work;
  w.repair.work_left = most > 0 ? most : 0x7fffffffffffffffll;
}

__device__ inline void open_bounds(Problem& p) {
  const CudaProblems& given = p.arguments->problems;
  int sum = 0;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    const int floor = given.tokens / given.experts;
    p.lower[e] = given.lower != nullptr ? given.lower[e] : floor;
    p.upper[e] = given.upper != nullptr ? min(given.upper[e], given.tokens)
                                        : floor + (given.tokens % given.experts != 0 ? 1 : 0);
    p.lower[e] = min(p.lower[e], p.upper[e]);
    sum += p.upper[e];
    p.hard[e] = 0;
  }
  sum = block_sum(sum, p.scratch.ints);
  if (threadIdx.x == 0) {
    p.empty = max(0, sum - given.tokens);
    p.scratch.ints[0] = 0;
  }
  __syncthreads();
}

// First look, scales, start prices. Returns the imbalance at them; `warm`: they are the caller's.
template <class M>
__device__ int look(Block& b, Team& team, bool& warm) {
  auto& [p, w] = b;
  const CudaProblems& given = p.arguments->problems;
  const double* start =
      given.start_prices == nullptr ? nullptr : given.start_prices + p.number * given.start_stride;
  first_look<M>(p, w.scan, start);
  __syncthreads();
  const Sums mine = p.passes.now(p.experts);
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    if (p.hard[e] != 0) atomicAdd(&mine.hard[e], p.hard[e]);
  }
  if (threadIdx.x == 0) {
    const int counted = p.scratch.ints[0];
    w.scan.block_padding[team.rank] = p.rows.last - p.rows.first - counted;
    atomicAdd(&w.scan.head->counted, static_cast<unsigned>(counted));
  }
  clear_next_curve(p, w.prices, team);
  clear_table(p, w.repair, team);
  const Sums sums = finish_pass(p, team);
  if (threadIdx.x == 0) set_scales(p, w.scan);
  __syncthreads();
  use_stage<M>(p);
  value_blindly<M>(p, w.solution, team);
  sample_deviation(p);
  warm = load_start(p, start);
  collect_loads(p, sums);
  return imbalance_of(p, p.hard);
}

// Prices and assignment; false if it did not come to an end.
template <class M>
__device__ bool solve(Block& b, Team& team) {
  auto& [p, w] = b;
  bool warm = false;
  const int imbalance = look<M>(b, team, warm);
  if (p.counted > 0 && p.range > 0) {
    const Annealing annealing = plan_annealing(p, imbalance, warm);
    if (imbalance > annealing.goal) anneal<M>(p, w.prices, team, annealing);
  }
  if (p.forbid == 0) {
    const Outcome outcome = repair_all<Narrow, M>(p, w.repair, w.solution, team);
    if (outcome == Outcome::kSolved || outcome == Outcome::kSpent)
      return outcome == Outcome::kSolved;
    soften_prices<Narrow>(p);
  }
  return repair_wide<M>(p, w.repair, w.solution, team) == Outcome::kSolved;
}

// Recomputes what an assignment is worth after it was changed by force.
template <class M>
__noinline__ __device__ void value_again(Problem& p, Repair& repair, const Solution& solution,
                                         Team& team) {
  clear_next(p, team);
  exact_pass<Wide, M>(p, repair, solution, team, false);
  finish_pass(p, team);
}

template <class M>
__device__ void solve_problem(Block& b, Team& team, int problem) {
  auto& [p, w] = b;
  if (threadIdx.x == 0) open_rows(b, team, problem);
  __syncthreads();
  open_bounds(p);
  const bool solved = solve<M>(b, team);
  if (!solved) {
    if (team.rank == 0) force_bounds(p, w.solution, w.output);
    team.meet();
    value_again<M>(p, w.repair, w.solution, team);
  }
  if (p.padding == 0 && team.rank == 0) {
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) w.solution.padding_at[e] = 0;
  }
  if (p.padding > 0) place_padding(p, w.scan, w.solution, w.output, team);
  int* counts = reinterpret_cast<int*>(p.scratch.arena);
  int* loads = p.arguments->results.loads + static_cast<int64_t>(problem) * p.experts;
  count_runs(p, w.solution, w.output, team, counts);
  team.meet();
  sum_runs(p, w.output, team, loads);
  team.meet();
  write_order(p, w.solution, w.output, team, counts, loads);
  if (team.rank == 0) write_status(p, w.scan, w.solution, team, solved, loads);
}

// What a block does from the launch to the end.
template <class M>
__device__ void run(const Arguments& arguments, char* memory) {
  Block& b = *reinterpret_cast<Block*>(memory);
  const Shape& shape = arguments.shape;
  const int slot = blockIdx.x / shape.team;
  if (slot >= shape.teams) return;
  char* base = arguments.workspace + slot * arguments.workspace_stride;
  if (threadIdx.x == 0) open_block<M>(b, arguments, memory, base);
  __syncthreads();
  Team team{b.work.counter, 0, shape.team, static_cast<int>(blockIdx.x) % shape.team};
  for (int problem = slot; problem < arguments.problems.problems; problem += shape.teams) {
    if (arguments.solved != nullptr && arguments.solved[problem] != 0) continue;
    if (problem != slot) {
      team.meet();
      auto* words = reinterpret_cast<int*>(b.work.scan.head);
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
