// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/on_chip_load_cuda.cuh"
#include "ballast/assignment/on_chip_output_cuda.cuh"
#include "ballast/assignment/on_chip_repair_cuda.cuh"
#include "ballast/assignment/on_chip_rounding_cuda.cuh"

namespace ballast::assignment {
namespace on_chip {

// From c.best_price to the optimum. False: that was not reached; c.own and c.hard are of c.quanta.
template <int kExperts>
__device__ bool improve(Chip<kExperts>& c, const Annealing& a) {
  if (threadIdx.x < kExperts) {
    c.price[threadIdx.x] = c.best_price[threadIdx.x];
    c.exact_price[threadIdx.x] = c.price[threadIdx.x];
  }
  __syncthreads();
  if (!round_prices(c)) return false;
  const auto want = static_cast<float>(5 * max(a.best_hard, c.experts));  // tokens that may move
  const float near = a.trace > 0 ? a.trace_tau * want / a.trace : 0.05f * c.deviation;
  const bool optimal = repair(c, near * c.exact_scale);
  if (threadIdx.x < kExperts)
    c.exact_price[threadIdx.x] = static_cast<double>(c.quanta[threadIdx.x]) / c.exact_scale;
  __syncthreads();
  return optimal;
}

struct Found {
  Worth worth;
  bool reached = false;  // the gap that is allowed
  bool even = false;     // there is an assignment
  bool started = true;   // false: the start prices are of other scores
};

// The optimum; with a gap allowed, what the work that is allowed leads to.
template <int kExperts>
__device__ Found solve(Chip<kExperts>& c, Annealing& a, double gap) {
  const int goal = max(1, max(c.experts / 5, c.tokens / 1000));
  Found found;
  found.started = find_prices(c, a, goal);
  if (!found.started) return found;
  const bool optimal = improve(c, a);
  if (!optimal && gap == 0) return found;
  if (!optimal) round_off(c);
  found.worth = value_result(c);
  const double dual = found.worth.primal + found.worth.slack;
  // Quanta that are too coarse for these scores leave slack: the general solver has finer ones.
  const bool fine = found.worth.slack <= 4e-10 * found.worth.norm;
  found.reached = found.worth.slack <= gap * (dual - found.worth.blind) || (optimal && fine);
  found.even = gap > 0 || fine;
  return found;
}

template <int kExperts>
__device__ void solve_problem(Chip<kExperts>& c, const Arguments& a, int problem) {
  open_problem(c);
  begin_team(c);
  load_scores(c, a.problems, problem);
  __syncthreads();
  await_team(c);
  Refused refused;
  const double* start = a.problems.start_prices;
  if (start != nullptr) start += static_cast<int64_t>(problem) * c.experts;
  Found found{.started = false};
  // Once more where scores were mended or lifted, or the start was no good.
  while (!found.started) {
    Annealing annealing;
    annealing.warm = load_start(c, start);
    if (!(annealing.warm ? glance(c) : first_look(c, c.direction, a.quantile))) {
      refused = mend_scores(c);
    } else if (!lift_scores(c)) {
      found = solve(c, annealing, a.options.gap);
      start = nullptr;
    }
  }
  if (found.even) {
    write_places(c, a.results, problem);
    if (c.rank == 0)
      write_status(c, a, problem, found.worth, refused,
                   found.reached ? AssignmentStatus::kOk : AssignmentStatus::kNotConverged);
  }
  if (c.rank == 0 && threadIdx.x == 0) a.solved[problem] = found.even ? 1 : 0;
  meet(c);  // nobody's memory goes, or changes, while others read it
}

template <int kExperts>
__global__ void __launch_bounds__(kThreads, 1) on_chip_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  auto& c = *reinterpret_cast<Chip<kExperts>*>(memory);
  open_team(c, a);
  const int team = static_cast<int>(blockIdx.x) / a.blocks;
  for (int problem = team; problem < a.problems.problems; problem += a.teams)
    solve_problem(c, a, problem);
}

namespace {

// A team of blocks for each problem.
struct Plan {
  const void* kernel = nullptr;  // null: problems do not fit
  int blocks = 0, rows = 0;
  int rows_together = 0;   // that a block reads in one turn
  int teams = 0;           // at a time
  size_t bytes = 0;        // of shared memory
  size_t desk_bytes = 0;   // 0: teams are clusters
  size_t desk_zeroed = 0;  // bytes of a desk that must be zero
};

enum class Meeting { kCluster, kDesk };

template <int kExperts>
Plan plan_for(const CudaProblems& p, int blocks, Meeting meeting) {
  using C = Chip<kExperts>;
  const int rows = (p.tokens + blocks - 1) / blocks, padded = (rows + 15) / 16 * 16;
  const bool desk = meeting == Meeting::kDesk;
  const size_t stage = static_cast<size_t>(padded) * C::kStagePitch * sizeof(__nv_bfloat16);
  const size_t rounding = Exchange<kExperts>::bytes(desk ? 0 : p.tokens);
  const size_t notes = desk ? 0 : 2 * sizeof(Note<kExperts>) * static_cast<size_t>(blocks);
  const size_t scores = sizeof(float) * static_cast<size_t>(padded) * kExperts;
  return {.kernel = reinterpret_cast<const void*>(&on_chip_kernel<kExperts>),
          .blocks = blocks,
          .rows = padded,
          .rows_together = C::kTogether,
          .teams = p.problems,
          .bytes = sizeof(C) + scores + notes + std::max({stage, size_t{kArenaBytes}, rounding}),
          .desk_bytes = desk ? sizeof(Desk<kExperts>) : 0,
          .desk_zeroed = desk ? offsetof(Desk<kExperts>, notes) : 0};
}

Plan plan_for(const CudaProblems& p, int blocks, Meeting meeting) {
  if (p.experts <= 32) return plan_for<32>(p, blocks, meeting);
  if (p.experts <= 64) return plan_for<64>(p, blocks, meeting);
  return plan_for<128>(p, blocks, meeting);
}

bool fits(const Plan& plan, const CudaDevice& device) {
  return plan.bytes <= static_cast<size_t>(device.shared_bytes) && plan.rows <= kOnChipRows;
}

cudaLaunchConfig_t config_of(const Plan& plan, cudaLaunchAttribute& together) {
  check_launch(cudaFuncSetAttribute(plan.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(plan.bytes)),
               "the on-chip solver's shared memory");
  if (plan.desk_bytes > 0) {
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  } else {
    check_launch(
        cudaFuncSetAttribute(plan.kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "the on-chip solver's clusters");
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = static_cast<unsigned>(plan.blocks);
    together.val.clusterDim.y = together.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks * plan.teams));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = plan.bytes;
  config.attrs = &together;
  config.numAttrs = 1;
  return config;
}

// How many clusters the device can take side by side.
int clusters_at_once(const Plan& plan) {
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(plan, cluster);
  int clusters = 0;
  check_launch(cudaOccupancyMaxActiveClusters(&clusters, plan.kernel, &config), "clusters");
  return clusters;
}

// As many blocks for each problem as leave room for all problems at once, or as few as can be. No
// kernel: there is no such cluster. `at_once`: whether all can be.
Plan find_clusters(const CudaProblems& p, const CudaDevice& device, bool& at_once) {
  Plan plan;
  for (const int blocks : {4, 8, 16}) {
    const Plan found = plan_for(p, blocks, Meeting::kCluster);
    // More than eight pay where eight read their rows in more than one turn.
    const bool pays = blocks <= 8 || p.tokens > 8 * found.rows_together;
    if (!fits(found, device) || !pays) continue;
    const int clusters = clusters_at_once(found);
    if (clusters == 0 || (plan.kernel != nullptr && clusters < p.problems)) continue;
    plan = found;
    at_once = clusters >= p.problems;
  }
  return plan;
}

// The same for teams that meet at desks.
Plan find_desks(const CudaProblems& p, const CudaDevice& device) {
  constexpr int kFewRows = 128;  // more blocks than those that have as many do not pay
  Plan plan;
  for (int blocks = 8; blocks <= std::min(kOnChipTeam, device.multiprocessors); blocks *= 2) {
    Plan found = plan_for(p, blocks, Meeting::kDesk);
    found.teams = std::min(p.problems, device.multiprocessors / blocks);
    if (!fits(found, device)) continue;
    if (plan.kernel == nullptr || (found.teams == p.problems && found.rows >= kFewRows))
      plan = found;
  }
  return plan;
}

Plan find_plan(const CudaProblems& p) {
  const CudaDevice device = current_cuda_device();
  if (device.major < 9) return {};
  bool at_once = false;
  const Plan clusters = find_clusters(p, device, at_once);
  if (at_once) return clusters;
  const Plan desks = find_desks(p, device);
  const bool better = clusters.kernel == nullptr || desks.teams == p.problems;
  return desks.kernel != nullptr && better ? desks : clusters;
}

// The same, asked of the device once for all problems of a shape.
Plan plan_for(const CudaProblems& p) {
  struct Known {
    int device = -1, problems = 0, tokens = 0, experts = 0;
    bool operator==(const Known&) const = default;
  };
  thread_local Known known;
  thread_local Plan plan;
  Known asked{-1, p.problems, p.tokens, p.experts};
  check_launch(cudaGetDevice(&asked.device), "the current device");
  if (asked != known) {
    plan = find_plan(p);
    known = asked;
  }
  return plan;
}

// The normal distribution's quantile at 1 - 1/experts, roughly (Abramowitz and Stegun 26.2.23).
float quantile_of(int experts) {
  if (experts < 3) return 0;
  const double t = std::sqrt(2 * std::log(static_cast<double>(experts)));
  return static_cast<float>(t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                                    (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t));
}

}  // namespace
}  // namespace on_chip

bool fits_on_chip(const CudaProblems& p) {
  if (p.problems < 1 || p.experts < 2 || p.experts > kOnChipExperts || p.tokens < p.experts ||
      p.tokens % p.experts != 0 || p.lower != nullptr || p.upper != nullptr ||
      p.counted != nullptr || p.non_finite == NonFinite::kForbid || p.tokens > kOnChipTokens) {
    return false;
  }
  return on_chip::plan_for(p).kernel != nullptr;
}

size_t on_chip_workspace(const CudaProblems& problems) {
  const on_chip::Plan plan = on_chip::plan_for(problems);
  return plan.desk_bytes * static_cast<size_t>(plan.teams);
}

void launch_on_chip_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         const OnChipOptions& options, int32_t* solved, void* workspace,
                         cudaStream_t stream) {
  const on_chip::Plan plan = on_chip::plan_for(problems);
  const bool desks = plan.desk_bytes > 0;
  on_chip::Arguments arguments{.problems = problems,
                               .results = results,
                               .options = options,
                               .solved = solved,
                               .desks = desks ? static_cast<char*>(workspace) : nullptr,
                               .desk_bytes = plan.desk_bytes,
                               .blocks = plan.blocks,
                               .teams = plan.teams,
                               .rows = plan.rows,
                               .quantile = on_chip::quantile_of(problems.experts)};
  if (desks) {
    check_launch(cudaMemset2DAsync(workspace, plan.desk_bytes, 0, plan.desk_zeroed,
                                   static_cast<size_t>(plan.teams), stream),
                 "the on-chip solver's memory");
  }
  cudaLaunchAttribute together{};
  cudaLaunchConfig_t config = on_chip::config_of(plan, together);
  config.stream = stream;
  void* parameters[] = {&arguments};
  check_launch(cudaLaunchKernelExC(&config, plan.kernel, parameters), "the on-chip solver");
}

}  // namespace ballast::assignment
