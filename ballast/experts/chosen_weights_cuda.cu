// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

#include "ballast/experts/expert_lanes_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

// kShare lanes have one token and share the experts.
constexpr int kThreads = 256;

struct Sizes {
  int64_t tokens;
  int experts, of_token;
  bool sigmoid, among_all;
};

template <typename Scalar>
__device__ Scalar sigmoid_of(Scalar x) {
  return 1 / (1 + exponential(-x));
}

template <int kShare, typename Scalar>
__global__ void __launch_bounds__(kThreads)
    chosen_weights_kernel(Sizes sizes, const Scalar* affinities, const int64_t* expert,
                          Scalar* weights) {
  const int lane = threadIdx.x % kShare;
  const int64_t token = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kShare;
  if (token >= sizes.tokens) return;
  const Scalar* const row = affinities + token * sizes.experts;
  const int64_t* const chosen = expert + token * sizes.of_token;
  Scalar* const weight = weights + token * sizes.of_token;
  if (sizes.sigmoid) {
    for (int k = lane; k < sizes.of_token; k += kShare) weight[k] = sigmoid_of(row[chosen[k]]);
    return;
  }
  Scalar largest, sum;
  if (sizes.among_all) {
    partition<kShare>(row, sizes.experts, largest, sum);
    for (int k = lane; k < sizes.of_token; k += kShare)
      weight[k] = exponential(row[chosen[k]] - largest) / sum;
    return;
  }
  largest = row[chosen[0]];
  for (int k = 1; k < sizes.of_token; ++k) largest = max(largest, row[chosen[k]]);
  sum = 0;
  for (int k = 0; k < sizes.of_token; ++k) sum += exponential(row[chosen[k]] - largest);
  for (int k = lane; k < sizes.of_token; k += kShare)
    weight[k] = exponential(row[chosen[k]] - largest) / sum;
}

// The gradient of a loss beside by a token's probabilities.
struct Balance {
  const double* of_groups;  // [P, E], or null
  int64_t tokens;           // of a group
};

// Adds it, by the token's affinities.
template <int kShare, typename Scalar>
__device__ void add_balance(const Sizes& sizes, const double* balance, const Scalar* row,
                            Scalar* drow) {
  const int lane = threadIdx.x % kShare;
  Scalar largest, sum, mean = 0;
  partition<kShare>(row, sizes.experts, largest, sum);
  for (int e = lane; e < sizes.experts; e += kShare)
    mean += static_cast<Scalar>(balance[e]) * exponential(row[e] - largest) / sum;
  mean = sum_of_lanes<kShare>(mean);
  for (int e = lane; e < sizes.experts; e += kShare)
    drow[e] += (static_cast<Scalar>(balance[e]) - mean) * exponential(row[e] - largest) / sum;
}

// Each lane writes what it alone reads again.
template <int kShare, typename Scalar>
__device__ void weigh_backward(const Sizes& sizes, const Scalar* dweight, const Scalar* row,
                               const int64_t* chosen, const Scalar* weight, Scalar* drow) {
  const int lane = threadIdx.x % kShare;
  Scalar mean = 0;
  for (int k = 0; k < sizes.of_token; ++k) mean += dweight[k] * weight[k];
  if (!sizes.sigmoid && sizes.among_all) {
    Scalar largest, sum;
    partition<kShare>(row, sizes.experts, largest, sum);
    for (int e = lane; e < sizes.experts; e += kShare) {
      Scalar own = 0;
      for (int k = 0; k < sizes.of_token; ++k)
        if (chosen[k] == e) own = dweight[k] * weight[k];
      drow[e] = own - mean * exponential(row[e] - largest) / sum;
    }
    return;
  }
  for (int e = lane; e < sizes.experts; e += kShare) {
    Scalar gradient = 0;
    for (int k = 0; k < sizes.of_token; ++k) {
      if (chosen[k] != e) continue;
      const Scalar w = weight[k];
      gradient = sizes.sigmoid ? dweight[k] * w * (1 - w) : w * (dweight[k] - mean);
    }
    drow[e] = gradient;
  }
}

template <int kShare, typename Scalar>
__global__ void __launch_bounds__(kThreads)
    chosen_weights_backward_kernel(Sizes sizes, const Scalar* dweights, const Scalar* affinities,
                                   const int64_t* expert, const Scalar* weights, Balance balance,
                                   Scalar* daffinities) {
  const int64_t token = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kShare;
  if (token >= sizes.tokens) return;
  const int64_t row = token * sizes.experts, first = token * sizes.of_token;
  weigh_backward<kShare>(sizes, dweights + first, affinities + row, expert + first, weights + first,
                         daffinities + row);
  if (balance.of_groups == nullptr) return;
  add_balance<kShare>(sizes, balance.of_groups + token / balance.tokens * sizes.experts,
                      affinities + row, daffinities + row);
}

Sizes sizes_of(const Tensor& affinities, const Tensor& expert, bool sigmoid, bool among_all) {
  return {expert.size(0), static_cast<int>(affinities.size(1)), static_cast<int>(expert.size(1)),
          sigmoid, among_all};
}

}  // namespace

Tensor chosen_weights_cuda(const Tensor& affinities, const Tensor& expert, bool sigmoid,
                           bool among_all) {
  const c10::cuda::CUDAGuard guard(affinities.device());
  const Tensor weights = affinities.new_empty(expert.sizes());  // [T, K]
  const Sizes sizes = sizes_of(affinities, expert, sigmoid, among_all);
  if (sizes.tokens == 0) return weights;
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights", [&] {
    auto* const kernel = lanes_for(sizes.experts) == kLanes
                             ? chosen_weights_kernel<kLanes, scalar_t>
                             : chosen_weights_kernel<kFewLanes, scalar_t>;
    kernel<<<blocks_for(sizes.tokens, sizes.experts, kThreads), kThreads, 0,
             at::cuda::getCurrentCUDAStream()>>>(sizes, affinities.const_data_ptr<scalar_t>(),
                                                 expert.const_data_ptr<int64_t>(),
                                                 weights.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return weights;
}

Tensor chosen_weights_backward_cuda(const Tensor& dweights, const Tensor& affinities,
                                    const Tensor& expert, const Tensor& weights, bool sigmoid,
                                    bool among_all, const OptionalTensor& balance) {
  const c10::cuda::CUDAGuard guard(affinities.device());
  const Tensor daffinities = affinities.new_empty(affinities.sizes());
  const Sizes sizes = sizes_of(affinities, expert, sigmoid, among_all);
  if (sizes.tokens == 0) return daffinities;
  const Balance beside =
      balance ? Balance{balance->const_data_ptr<double>(), sizes.tokens / balance->size(0)}
              : Balance{nullptr, 0};
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights_backward", [&] {
    auto* const kernel = lanes_for(sizes.experts) == kLanes
                             ? chosen_weights_backward_kernel<kLanes, scalar_t>
                             : chosen_weights_backward_kernel<kFewLanes, scalar_t>;
    kernel<<<blocks_for(sizes.tokens, sizes.experts, kThreads), kThreads, 0,
             at::cuda::getCurrentCUDAStream()>>>(
        sizes, dweights.const_data_ptr<scalar_t>(), affinities.const_data_ptr<scalar_t>(),
        expert.const_data_ptr<int64_t>(), weights.const_data_ptr<scalar_t>(), beside,
        daffinities.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return daffinities;
}

}  // namespace ballast::experts
