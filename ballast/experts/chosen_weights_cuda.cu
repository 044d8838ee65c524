// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <cstdint>

namespace ballast::experts {
namespace {

using at::Tensor;

// A warp has one token at a time; its lanes share the experts.
constexpr int kWarp = 32, kWarps = 8;
constexpr unsigned kAll = 0xffffffffu;

struct Sizes {
  int64_t tokens;
  int experts, of_token;
  bool sigmoid;
};

__device__ float exponential(float x) { return __expf(x); }
__device__ double exponential(double x) { return exp(x); }

// The largest affinity of a row, and the sum of exp(affinity - largest), for all lanes.
template <typename Scalar>
__device__ void partition(const Scalar* row, int experts, Scalar& largest, Scalar& sum) {
  const int lane = threadIdx.x % kWarp;
  largest = row[lane < experts ? lane : 0];
  for (int e = lane; e < experts; e += kWarp) largest = max(largest, row[e]);
  for (int step = kWarp / 2; step > 0; step /= 2)
    largest = max(largest, __shfl_xor_sync(kAll, largest, step));
  sum = 0;
  for (int e = lane; e < experts; e += kWarp) sum += exponential(row[e] - largest);
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
}

template <typename Scalar>
__device__ Scalar sigmoid_of(Scalar x) {
  return 1 / (1 + exponential(-x));
}

template <typename Scalar>
__global__ void __launch_bounds__(kWarp* kWarps)
    chosen_weights_kernel(Sizes sizes, const Scalar* affinities, const int64_t* expert,
                          Scalar* weights) {
  const int lane = threadIdx.x % kWarp;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= sizes.tokens) return;
  const Scalar* const row = affinities + token * sizes.experts;
  const int64_t* const chosen = expert + token * sizes.of_token;
  Scalar* const weight = weights + token * sizes.of_token;
  if (sizes.sigmoid) {
    for (int k = lane; k < sizes.of_token; k += kWarp) weight[k] = sigmoid_of(row[chosen[k]]);
    return;
  }
  Scalar largest, sum;
  if (sizes.of_token == 1) {
    partition(row, sizes.experts, largest, sum);
    if (lane == 0) weight[0] = exponential(row[chosen[0]] - largest) / sum;
    return;
  }
  largest = row[chosen[0]];
  for (int k = 1; k < sizes.of_token; ++k) largest = max(largest, row[chosen[k]]);
  sum = 0;
  for (int k = 0; k < sizes.of_token; ++k) sum += exponential(row[chosen[k]] - largest);
  for (int k = lane; k < sizes.of_token; k += kWarp)
    weight[k] = exponential(row[chosen[k]] - largest) / sum;
}

template <typename Scalar>
__global__ void __launch_bounds__(kWarp* kWarps)
    chosen_weights_backward_kernel(Sizes sizes, const Scalar* dweights, const Scalar* affinities,
                                   const int64_t* expert, const Scalar* weights,
                                   Scalar* daffinities) {
  const int lane = threadIdx.x % kWarp;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= sizes.tokens) return;
  const Scalar* const row = affinities + token * sizes.experts;
  const int64_t* const chosen = expert + token * sizes.of_token;
  const Scalar* const weight = weights + token * sizes.of_token;
  const Scalar* const dweight = dweights + token * sizes.of_token;
  Scalar* const drow = daffinities + token * sizes.experts;
  if (!sizes.sigmoid && sizes.of_token == 1) {
    Scalar largest, sum;
    partition(row, sizes.experts, largest, sum);
    const Scalar along = dweight[0] * weight[0];
    for (int e = lane; e < sizes.experts; e += kWarp)
      drow[e] = along * ((e == chosen[0] ? 1 : 0) - exponential(row[e] - largest) / sum);
    return;
  }
  Scalar mean = 0;
  for (int k = 0; k < sizes.of_token; ++k) mean += dweight[k] * weight[k];
  for (int e = lane; e < sizes.experts; e += kWarp) {
    Scalar gradient = 0;
    for (int k = 0; k < sizes.of_token; ++k) {
      if (chosen[k] != e) continue;
      const Scalar w = weight[k];
      gradient = sizes.sigmoid ? dweight[k] * w * (1 - w) : w * (dweight[k] - mean);
    }
    drow[e] = gradient;
  }
}

Sizes sizes_of(const Tensor& affinities, const Tensor& expert, bool sigmoid) {
  return {expert.size(0), static_cast<int>(affinities.size(1)), static_cast<int>(expert.size(1)),
          sigmoid};
}

unsigned blocks_for(const Sizes& sizes) {
  return static_cast<unsigned>((sizes.tokens + kWarps - 1) / kWarps);
}

Tensor chosen_weights_cuda(const Tensor& affinities, const Tensor& expert, bool sigmoid) {
  const c10::cuda::CUDAGuard guard(affinities.device());
  const Tensor weights = at::empty(expert.sizes(), affinities.options());  // [T, K]
  const Sizes sizes = sizes_of(affinities, expert, sigmoid);
  if (sizes.tokens == 0) return weights;
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights", [&] {
    chosen_weights_kernel<scalar_t>
        <<<blocks_for(sizes), kWarp * kWarps, 0, at::cuda::getCurrentCUDAStream()>>>(
            sizes, affinities.const_data_ptr<scalar_t>(), expert.const_data_ptr<int64_t>(),
            weights.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return weights;
}

Tensor chosen_weights_backward_cuda(const Tensor& dweights, const Tensor& affinities,
                                    const Tensor& expert, const Tensor& weights, bool sigmoid) {
  const c10::cuda::CUDAGuard guard(affinities.device());
  const Tensor daffinities = at::empty_like(affinities);
  const Sizes sizes = sizes_of(affinities, expert, sigmoid);
  if (sizes.tokens == 0) return daffinities;
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights_backward", [&] {
    chosen_weights_backward_kernel<scalar_t>
        <<<blocks_for(sizes), kWarp * kWarps, 0, at::cuda::getCurrentCUDAStream()>>>(
            sizes, dweights.const_data_ptr<scalar_t>(), affinities.const_data_ptr<scalar_t>(),
            expert.const_data_ptr<int64_t>(), weights.const_data_ptr<scalar_t>(),
            daffinities.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return daffinities;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("chosen_weights", chosen_weights_cuda);
  library.impl("chosen_weights_backward", chosen_weights_backward_cuda);
}

}  // namespace ballast::experts
