// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/on_chip_kernels_cuda.cuh"
#include "ballast/assignment/on_chip_rounding_cuda.cuh"

namespace ballast::assignment {
namespace on_chip {
namespace {

// A team of blocks for each problem.
struct Plan {
  const void* kernel = nullptr;      // for exact results; null: problems do not fit
  const void* gap_kernel = nullptr;  // with a gap allowed; takes as much of everything
  int blocks = 0, rows = 0;
  int rows_together = 0;   // that a block reads in one turn
  int teams = 0;           // at a time
  size_t bytes = 0;        // of shared memory
  size_t desk_bytes = 0;   // 0: teams are clusters
  size_t desk_zeroed = 0;  // bytes of a desk that must be zero
};

template <int kExperts, Meeting kMeeting>
Plan plan_for(const CudaProblems& p, int blocks) {
  using C = Chip<kExperts, kMeeting>;
  using Threads = Layout<kExperts>;
  const int rows = (p.tokens + blocks - 1) / blocks, padded = (rows + 15) / 16 * 16;
  constexpr bool desk = kMeeting == Meeting::kDesk;
  const size_t stage = static_cast<size_t>(padded) * Threads::kStagePitch * sizeof(__nv_bfloat16);
  const size_t rounding = Exchange<kExperts>::bytes(desk ? 0 : p.tokens);
  const size_t notes = desk ? 0 : 2 * sizeof(Note<kExperts>) * static_cast<size_t>(blocks);
  const size_t scores = sizeof(float) * static_cast<size_t>(padded) * kExperts;
  return {.kernel = kernel_of<kExperts, Wish::kExact, kMeeting>(),
          .gap_kernel = kernel_of<kExperts, Wish::kGap, kMeeting>(),
          .blocks = blocks,
          .rows = padded,
          .rows_together = Threads::kTogether,
          .teams = p.problems,
          .bytes = sizeof(C) + scores + notes + std::max({stage, size_t{kArenaBytes}, rounding}),
          .desk_bytes = desk ? sizeof(Desk<kExperts>) : 0,
          .desk_zeroed = desk ? offsetof(Desk<kExperts>, notes) : 0};
}

template <Meeting kMeeting>
Plan plan_for(const CudaProblems& p, int blocks) {
  if (p.experts <= 32) return plan_for<32, kMeeting>(p, blocks);
  if (p.experts <= 64) return plan_for<64, kMeeting>(p, blocks);
  return plan_for<128, kMeeting>(p, blocks);
}

bool fits(const Plan& plan, const CudaDevice& device) {
  return plan.bytes <= static_cast<size_t>(device.shared_bytes) && plan.rows <= kOnChipRows;
}

cudaLaunchConfig_t config_of(const Plan& plan, const void* kernel, cudaLaunchAttribute& together) {
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(plan.bytes)),
               "the on-chip solver's shared memory");
  if (plan.desk_bytes > 0) {
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  } else {
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
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
  const cudaLaunchConfig_t config = config_of(plan, plan.kernel, cluster);
  int clusters = 0;
  check_launch(cudaOccupancyMaxActiveClusters(&clusters, plan.kernel, &config), "clusters");
  return clusters;
}

// As many blocks for each problem as leave room for all problems at once, or as few as can be. No
// kernel: there is no such cluster. `at_once`: whether all can be.
Plan find_clusters(const CudaProblems& p, const CudaDevice& device, bool& at_once) {
  Plan plan;
  for (const int blocks : {4, 8, 16}) {
    const Plan found = plan_for<Meeting::kCluster>(p, blocks);
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
    Plan found = plan_for<Meeting::kDesk>(p, blocks);
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
  const void* kernel = options.gap > 0 ? plan.gap_kernel : plan.kernel;
  cudaLaunchConfig_t config = on_chip::config_of(plan, kernel, together);
  config.stream = stream;
  void* parameters[] = {&arguments};
  check_launch(cudaLaunchKernelExC(&config, kernel, parameters), "the on-chip solver");
}

}  // namespace ballast::assignment
