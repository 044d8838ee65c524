// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

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
};

// The optimum; with a gap allowed the first assignment that keeps to it, or the last that was
// tried.
template <int kExperts>
__device__ Found solve(Chip<kExperts>& c, Annealing& a, double gap) {
  Found found;
  const auto value = [&] {
    found.worth = value_result(c);
    const double dual = found.worth.primal + found.worth.slack;
    found.reached = found.worth.slack <= gap * (dual - found.worth.blind);
    found.even = true;
  };
  if (find_prices(c, a, max(1, max(c.experts / 5, c.tokens / 1000)), gap)) {
    round_off(c);
    if (threadIdx.x < kExperts) c.exact_price[threadIdx.x] = c.price[threadIdx.x];
    __syncthreads();
    value();
    if (found.reached) return found;
  }
  const bool optimal = improve(c, a);
  if (!optimal && gap == 0) return {};
  if (!optimal) round_off(c);
  value();
  // Quanta that are too coarse for these scores leave slack: the general solver has finer ones.
  const bool fine = found.worth.slack <= 4e-10 * found.worth.norm;
  found.reached = found.reached || (optimal && fine);
  found.even = gap > 0 || fine;
  return found;
}

template <int kExperts>
__global__ void __launch_bounds__(kThreads, 1) on_chip_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  auto& c = *reinterpret_cast<Chip<kExperts>*>(memory);
  open(c, a);
  const int problem = static_cast<int>(blockIdx.x) / c.blocks;
  load_scores(c, a.problems, problem);
  __syncthreads();
  Refused refused;
  if (!first_look(c, c.direction, a.quantile)) {
    refused = mend_scores(c);
    first_look(c, c.direction, a.quantile);
  }
  if (lift_scores(c)) first_look(c, c.direction, a.quantile);
  const double* start = a.problems.start_prices;
  Annealing annealing;
  annealing.warm =
      load_start(c, start == nullptr ? nullptr : start + static_cast<int64_t>(problem) * c.experts);
  const Found found = solve(c, annealing, a.options.gap);
  if (found.even) {
    write_places(c, a.results, problem);
    if (c.rank == 0)
      write_status(c, a, problem, found.worth, refused,
                   found.reached ? AssignmentStatus::kOk : AssignmentStatus::kNotConverged);
  }
  if (c.rank == 0 && threadIdx.x == 0) a.solved[problem] = found.even ? 1 : 0;
  cooperative_groups::this_cluster().sync();  // nobody's memory goes while others read it
}

namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error("the on-chip solver: " + std::string(what) + ": " +
                             cudaGetErrorString(error));
  }
}

struct Plan {
  const void* kernel;
  int blocks, rows;
  size_t bytes;
};

template <int kExperts>
Plan plan_for(const CudaProblems& p, int blocks) {
  const int rows = (p.tokens + blocks - 1) / blocks, padded = (rows + 15) / 16 * 16;
  const size_t stage =
      static_cast<size_t>(padded) * Chip<kExperts>::kStagePitch * sizeof(__nv_bfloat16);
  const size_t arena = std::max({stage, size_t{kArenaBytes}, Exchange<kExperts>::bytes(p.tokens)});
  return {reinterpret_cast<const void*>(&on_chip_kernel<kExperts>), blocks, padded,
          sizeof(Chip<kExperts>) + sizeof(float) * static_cast<size_t>(padded) * kExperts + arena};
}

Plan plan_for(const CudaProblems& p, int blocks) {
  if (p.experts <= 32) return plan_for<32>(p, blocks);
  if (p.experts <= 64) return plan_for<64>(p, blocks);
  return plan_for<128>(p, blocks);
}

struct Device {
  int shared_bytes, major;
};

Device current_device() {
  int device = 0;
  Device found{};
  check(cudaGetDevice(&device), "no device");
  check(cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, device), "device");
  check(
      cudaDeviceGetAttribute(&found.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      "device");
  return found;
}

cudaLaunchConfig_t config_of(const Plan& plan, int problems, cudaLaunchAttribute& cluster) {
  check(cudaFuncSetAttribute(plan.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(plan.bytes)),
        "shared memory");
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(plan.blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks * problems));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = plan.bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return config;
}

// How many problems the device can take side by side.
int clusters_at_once(const Plan& plan) {
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(plan, 1, cluster);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, plan.kernel, &config), "clusters");
  return clusters;
}

// As many blocks for each problem as leave room for all problems at once, or as it needs. No
// kernel: they do not fit.
Plan find_plan(const CudaProblems& p, const Device& device) {
  Plan plan{};
  for (int blocks : {4, 8}) {
    const Plan found = plan_for(p, blocks);
    const bool fits = found.bytes <= static_cast<size_t>(device.shared_bytes) &&
                      found.rows <= kOnChipRows && device.major >= 9;
    if (!fits) continue;
    if (plan.kernel == nullptr || clusters_at_once(found) >= p.problems) plan = found;
  }
  return plan;
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
  check(cudaGetDevice(&asked.device), "no device");
  if (asked != known) {
    plan = find_plan(p, current_device());
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
      p.counted != nullptr || p.non_finite == NonFinite::kForbid ||
      p.tokens > kOnChipBlocks * kOnChipRows) {
    return false;
  }
  return on_chip::plan_for(p).kernel != nullptr;
}

void launch_on_chip_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         const OnChipOptions& options, int32_t* solved, cudaStream_t stream) {
  const on_chip::Plan plan = on_chip::plan_for(problems);
  on_chip::Arguments arguments{.problems = problems,
                               .results = results,
                               .options = options,
                               .solved = solved,
                               .rows = plan.rows,
                               .quantile = on_chip::quantile_of(problems.experts)};
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config = on_chip::config_of(plan, problems.problems, cluster);
  config.stream = stream;
  void* parameters[] = {&arguments};
  on_chip::check(cudaLaunchKernelExC(&config, plan.kernel, parameters), "launch");
}

}  // namespace ballast::assignment
