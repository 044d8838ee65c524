// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>

#include "ballast/experts/expert_lanes_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/experts/routing_sum_order.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

// One cluster of blocks: so sums have an order, and nobody has to look after others.
constexpr int kThreads = 1024, kBlocks = 8;

__device__ int64_t first_of_thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
constexpr int64_t kStep = int64_t{kBlocks} * kThreads;

// For all threads of a block. `of_warps` is shared memory.
__device__ double sum_of_block(double value, double (&of_warps)[kLanes]) {
  value = sum_of_lanes(value);
  __syncthreads();
  if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes] = value;
  __syncthreads();
  return sum_of_lanes(of_warps[threadIdx.x % kLanes]);
}

// Sums over all threads, for those of the first block.
template <int kCount>
__device__ void sum_over_cluster(double (&values)[kCount]) {
  __shared__ double of_warps[kLanes], of_blocks[kBlocks][kCount];
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();  // all blocks have begun
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const double sum = sum_of_block(values[k], of_warps);
    if (threadIdx.x == 0) cluster.map_shared_rank(&of_blocks[blockIdx.x][0], 0)[k] = sum;
  }
  cluster.sync();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = 0;
    for (int block = 0; block < kBlocks; ++block) values[k] += of_blocks[block][k];
  }
}

template <typename Scalar>
__device__ double part_of_gates(const Scalar* weights, int64_t tokens, int of_token) {
  double sum = 0;
#pragma unroll 4
  for (int64_t t = first_of_thread(); t < tokens; t += kStep)
    sum += static_cast<double>(weights[t * of_token]);
  return sum;
}

struct Prices {
  const double* rows;  // [N, E], or null
  int64_t count;       // N
  int experts;
};

// Sums of columns, less the sum of the rows' means. For one block.
__device__ void add_prices(const Prices& prices, double* sums, double (&of_warps)[kLanes]) {
  double all = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < prices.count * prices.experts; i += kThreads)
    all += prices.rows[i];
  const double means = sum_of_block(all, of_warps) / prices.experts;
  for (int e = threadIdx.x; e < prices.experts; e += kThreads) {
    double sum = 0;
#pragma unroll 4
    for (int64_t row = 0; row < prices.count; ++row) sum += prices.rows[row * prices.experts + e];
    sums[e] += sum - means;
  }
}

template <typename Scalar>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads)
    assignment_kernel(int64_t tokens, int of_token, const Scalar* weights, const int32_t* best,
                      const int32_t* expert, Prices prices, double* sums) {
  __shared__ double of_warps[kLanes];
  int matches = 0;
#pragma unroll 4
  for (int64_t t = first_of_thread(); t < tokens; t += kStep)
    matches += best[t] == expert[t] ? 1 : 0;
  double seen[] = {part_of_gates(weights, tokens, of_token), static_cast<double>(matches)};
  sum_over_cluster(seen);
  if (blockIdx.x > 0) return;
  if (prices.rows != nullptr) add_prices(prices, sums + kRoutingSums, of_warps);
  if (threadIdx.x > 0) return;
  sums[kSumOfTokens] += static_cast<double>(tokens);
  sums[kSumOfGates] += seen[0];
  sums[kSumOfBest] += seen[1];
  if (prices.rows != nullptr) sums[kSumOfGroups] += static_cast<double>(prices.count);
}

struct Gates {
  const int64_t *expert, *slot_of_row;  // [T, K]
  const double* losses;                 // [P]
  int64_t tokens, groups, experts;
  int of_token;
};

template <typename Scalar>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads)
    gates_kernel(Gates in, const Scalar* weights, double* sums) {
  double losses = 0;
  for (int64_t g = first_of_thread(); g < in.groups; g += kStep) losses += in.losses[g];
  int choices = 0, dropped = 0, passed_by = 0;
#pragma unroll 4
  for (int64_t t = first_of_thread(); t < in.tokens; t += kStep) {
    int chosen = 0, placed = 0;
    for (int k = 0; k < in.of_token; ++k) {
      chosen += in.expert[t * in.of_token + k] < in.experts ? 1 : 0;
      placed += in.slot_of_row[t * in.of_token + k] >= 0 ? 1 : 0;
    }
    choices += chosen;
    dropped += chosen - placed;
    passed_by += placed == 0 ? 1 : 0;
  }
  double seen[] = {part_of_gates(weights, in.tokens, in.of_token), losses,
                   static_cast<double>(choices), static_cast<double>(dropped),
                   static_cast<double>(passed_by)};
  sum_over_cluster(seen);
  if (first_of_thread() > 0) return;
  sums[kSumOfTokens] += static_cast<double>(in.tokens);
  sums[kSumOfGroups] += static_cast<double>(in.groups);
  sums[kSumOfGates] += seen[0];
  sums[kSumOfBalance] += seen[1];
  sums[kSumOfChoices] += seen[2];
  sums[kSumOfDropped] += seen[3];
  sums[kSumOfPassedBy] += seen[4];
}

}  // namespace

void add_seen_assignment_cuda(const Tensor& sums, const Tensor& weights, const Tensor& best,
                              const Tensor& expert, const OptionalTensor& prices) {
  const c10::cuda::CUDAGuard guard(sums.device());
  const Prices given = prices ? Prices{prices->const_data_ptr<double>(), prices->size(0),
                                       static_cast<int>(prices->size(1))}
                              : Prices{nullptr, 0, 0};
  AT_DISPATCH_FLOATING_TYPES(weights.scalar_type(), "add_seen_assignment", [&] {
    assignment_kernel<scalar_t><<<kBlocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        weights.size(0), static_cast<int>(weights.size(1)), weights.const_data_ptr<scalar_t>(),
        best.const_data_ptr<int32_t>(), expert.const_data_ptr<int32_t>(), given,
        sums.mutable_data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void add_seen_gates_cuda(const Tensor& sums, const Tensor& weights, const Tensor& expert,
                         const Tensor& slot_of_row, const Tensor& losses, int64_t experts) {
  const c10::cuda::CUDAGuard guard(sums.device());
  const Gates in{.expert = expert.const_data_ptr<int64_t>(),
                 .slot_of_row = slot_of_row.const_data_ptr<int64_t>(),
                 .losses = losses.const_data_ptr<double>(),
                 .tokens = weights.size(0),
                 .groups = losses.size(0),
                 .experts = experts,
                 .of_token = static_cast<int>(weights.size(1))};
  AT_DISPATCH_FLOATING_TYPES(weights.scalar_type(), "add_seen_gates", [&] {
    gates_kernel<scalar_t><<<kBlocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        in, weights.const_data_ptr<scalar_t>(), sums.mutable_data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace ballast::experts
