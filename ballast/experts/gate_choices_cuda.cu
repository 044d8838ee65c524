// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <climits>

#include "ballast/experts/expert_lanes_cuda.cuh"
#include "ballast/experts/gate_parts.h"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

constexpr int kMostWarps = 8, kThreads = 256;
constexpr size_t kSharedBytes = 48 * 1024;

template <typename Scalar>
struct Gate {
  const Scalar *logits, *lengths;  // [T, E]; [E] or null
  int64_t tokens;                  // of a group
  int experts, of_token;
};

// The experts that a token has already, as a warp knows them: each lane has a bit for each of its
// first 64 experts, and all know the last one.
struct Taken {
  uint64_t of_lane = 0;
  int last = -1;

  __device__ bool has(int e) const {
    return e == last || (e / kLanes < 64 && (of_lane >> (e / kLanes) & 1) != 0);
  }
  __device__ void add(int e) {
    last = e;
    if (e % kLanes == static_cast<int>(threadIdx.x) % kLanes && e / kLanes < 64)
      of_lane |= uint64_t{1} << (e / kLanes);
  }
};
constexpr int64_t kMostOfSeveral = 64 * kLanes;  // experts, where tokens have more than two

template <typename Scalar>
__device__ int best_but(const Gate<Scalar>& gate, const Scalar* row, const Taken& taken) {
  BestExpert<Scalar> best{.expert = INT_MAX};
  for (int e = threadIdx.x % kLanes; e < gate.experts; e += kLanes) {
    if (taken.has(e)) continue;
    if (best.expert == INT_MAX) best.expert = e;  // where none is better
    best.offer(score_of(row, gate.lengths, int64_t{e}), e);
  }
  return best_of_lanes(best).expert;
}

// A block has part blockIdx.x of group blockIdx.y, its warps a token each at a time. Sums are taken
// in an order that is always the same.
template <typename Scalar>
__global__ void choose_kernel(Gate<Scalar> gate, int64_t* expert, double* probability_sums) {
  extern __shared__ double memory[];
  auto* const sums = reinterpret_cast<Scalar*>(memory);  // [warps, E]
  const int warp = threadIdx.x / kLanes, warps = blockDim.x / kLanes, lane = threadIdx.x % kLanes;
  for (int e = lane; e < gate.experts; e += kLanes) sums[warp * gate.experts + e] = 0;
  const int64_t first = int64_t{blockIdx.x} * kTokensOfGatePart;
  const int64_t last = min(first + kTokensOfGatePart, gate.tokens);
  for (int64_t t = first + warp; t < last; t += warps) {
    const int64_t token = blockIdx.y * gate.tokens + t;
    const Scalar* const row = gate.logits + token * gate.experts;
    Taken taken;
    for (int k = 0; k < gate.of_token; ++k) {
      taken.add(best_but(gate, row, taken));
      if (lane == 0) expert[token * gate.of_token + k] = taken.last;
    }
    Scalar largest, sum;
    partition(row, gate.experts, largest, sum);
    for (int e = lane; e < gate.experts; e += kLanes)
      sums[warp * gate.experts + e] += exponential(row[e] - largest) / sum;
  }
  __syncthreads();
  double* const to =
      probability_sums + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * gate.experts;
  for (int e = threadIdx.x; e < gate.experts; e += blockDim.x) {
    double sum = 0;
    for (int w = 0; w < warps; ++w) sum += static_cast<double>(sums[w * gate.experts + e]);
    to[e] = sum;
  }
}

struct Firsts {
  const int64_t* expert;           // [T, K]
  const double* probability_sums;  // [P, C, E]
  int64_t tokens, parts;           // of a group
  int experts, of_token;
  double scale;
};

// A block has a group.
__global__ void __launch_bounds__(kThreads)
    balance_kernel(Firsts in, double* losses, double* shares) {
  extern __shared__ int counts[];  // [E]
  __shared__ double losses_of_warps[kThreads / kLanes];
  for (int e = threadIdx.x; e < in.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int64_t* const chosen = in.expert + blockIdx.x * in.tokens * in.of_token;
  for (int64_t t = threadIdx.x; t < in.tokens; t += kThreads) {
    const int64_t first = chosen[t * in.of_token];
    CUDA_KERNEL_ASSERT(first >= 0 && first < in.experts);
    atomicAdd(counts + first, 1);
  }
  __syncthreads();
  const auto tokens = static_cast<double>(in.tokens);
  double loss = 0;
  for (int e = threadIdx.x; e < in.experts; e += kThreads) {
    const double* const part = in.probability_sums + blockIdx.x * in.parts * in.experts + e;
    double sum = 0;
    for (int64_t c = 0; c < in.parts; ++c) sum += part[c * in.experts];
    const double share = counts[e] / tokens;
    loss += share * sum / tokens;
    shares[int64_t{blockIdx.x} * in.experts + e] = share * in.scale;
  }
  loss = sum_of_lanes(loss);
  if (threadIdx.x % kLanes == 0) losses_of_warps[threadIdx.x / kLanes] = loss;
  __syncthreads();
  if (threadIdx.x > 0) return;
  double sum = 0;
  for (const double of_warp : losses_of_warps) sum += of_warp;
  losses[blockIdx.x] = sum * in.experts;
}

}  // namespace

void gate_choices_cuda(const Tensor& logits, const OptionalTensor& lengths, const Tensor& expert,
                       const Tensor& probability_sums) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const int64_t groups = probability_sums.size(0), parts = probability_sums.size(1),
                experts = logits.size(1);
  if (logits.size(0) == 0) return;
  TORCH_CHECK(expert.size(1) <= 2 || experts <= kMostOfSeveral, "gate_choices: ", expert.size(1),
              " experts of a token are chosen from at most ", kMostOfSeveral,
              " on a GPU, not from ", experts);
  const size_t of_warp = static_cast<size_t>(experts) * logits.element_size();
  TORCH_CHECK(of_warp <= kSharedBytes && groups < 65536, "gate_choices: too many experts (",
              experts, ") or groups (", groups, ") for a GPU");
  const auto warps = static_cast<unsigned>(std::min<size_t>(kMostWarps, kSharedBytes / of_warp));
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(groups));
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "gate_choices", [&] {
    const Gate<scalar_t> gate{.logits = logits.const_data_ptr<scalar_t>(),
                              .lengths = kernels::data_or_null<scalar_t>(lengths),
                              .tokens = logits.size(0) / groups,
                              .experts = static_cast<int>(experts),
                              .of_token = static_cast<int>(expert.size(1))};
    choose_kernel<scalar_t>
        <<<grid, warps * kLanes, warps * of_warp, at::cuda::getCurrentCUDAStream()>>>(
            gate, expert.mutable_data_ptr<int64_t>(), probability_sums.mutable_data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void gate_balance_cuda(const Tensor& expert, const Tensor& probability_sums, double scale,
                       const Tensor& losses, const Tensor& shares) {
  const c10::cuda::CUDAGuard guard(expert.device());
  const int64_t groups = probability_sums.size(0), experts = probability_sums.size(2);
  const auto shared = static_cast<size_t>(experts) * sizeof(int);
  TORCH_CHECK(shared <= kSharedBytes - 1024, "gate_balance: too many experts (", experts,
              ") for a GPU");
  if (groups == 0) return;
  const Firsts in{.expert = expert.const_data_ptr<int64_t>(),
                  .probability_sums = probability_sums.const_data_ptr<double>(),
                  .tokens = expert.size(0) / groups,
                  .parts = probability_sums.size(1),
                  .experts = static_cast<int>(experts),
                  .of_token = static_cast<int>(expert.size(1)),
                  .scale = scale};
  balance_kernel<<<static_cast<unsigned>(groups), kThreads, shared,
                   at::cuda::getCurrentCUDAStream()>>>(in, losses.mutable_data_ptr<double>(),
                                                       shares.mutable_data_ptr<double>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::experts
