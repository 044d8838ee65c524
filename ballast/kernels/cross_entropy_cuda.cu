// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <type_traits>

namespace ballast {
namespace {

using at::Tensor;

constexpr int kThreads = 512;

// bf16 and fp32 rows are summed in fp32, fp64 rows in fp64.
template <typename Scalar>
using Sum = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;

// A running maximum and the sum of exponentials relative to it.
template <typename T>
struct MaxAndSum {
  T maximum, sum;
};

template <typename T>
__device__ MaxAndSum<T> merge(MaxAndSum<T> a, MaxAndSum<T> b) {
  if (b.sum == 0) return a;
  if (a.sum == 0) return b;
  const T maximum = a.maximum > b.maximum ? a.maximum : b.maximum;
  return {maximum, a.sum * exp(a.maximum - maximum) + b.sum * exp(b.maximum - maximum)};
}

// Every thread gets the block's result. The order of merges is fixed: the same bits every time.
template <typename T>
__device__ MaxAndSum<T> merge_over_block(MaxAndSum<T> mine) {
  __shared__ MaxAndSum<T> parts[kThreads];
  parts[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      parts[threadIdx.x] = merge(parts[threadIdx.x], parts[threadIdx.x + half]);
  }
  __syncthreads();
  return parts[0];
}

// One block a row: losses[row] = log sum exp - logit[target]; the row becomes its gradient.
template <typename Scalar>
__global__ void softmax_cross_entropy_kernel(Scalar* logits, const int64_t* targets,
                                             Sum<Scalar>* losses, int64_t vocabulary,
                                             Sum<Scalar> scale) {
  using T = Sum<Scalar>;
  Scalar* row = logits + blockIdx.x * vocabulary;
  const int64_t target = targets[blockIdx.x];
  if (target < 0) {
    for (int64_t i = threadIdx.x; i < vocabulary; i += kThreads) row[i] = Scalar(0);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }
  CUDA_KERNEL_ASSERT(target < vocabulary);
  MaxAndSum<T> mine{T(0), T(0)};
  for (int64_t i = threadIdx.x; i < vocabulary; i += kThreads)
    mine = merge(mine, {static_cast<T>(row[i]), T(1)});
  const T at_target = static_cast<T>(row[target]);
  const MaxAndSum<T> all =
      merge_over_block(mine);  // also: everyone has read the target before it is overwritten
  const T factor = scale / all.sum;
  for (int64_t i = threadIdx.x; i < vocabulary; i += kThreads) {
    const T gradient = exp(static_cast<T>(row[i]) - all.maximum) * factor;
    row[i] = static_cast<Scalar>(i == target ? gradient - scale : gradient);
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = log(all.sum) + (all.maximum - at_target);
}

Tensor softmax_cross_entropy_cuda_(Tensor& logits, const Tensor& targets, double scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const bool wide = logits.scalar_type() == at::kDouble;
  Tensor losses =
      at::empty({logits.size(0)}, logits.options().dtype(wide ? at::kDouble : at::kFloat));
  if (logits.size(0) == 0) return losses;
  AT_DISPATCH_FLOATING_TYPES_AND(
      at::kBFloat16, logits.scalar_type(), "softmax_cross_entropy_", [&] {
        softmax_cross_entropy_kernel<scalar_t>
            <<<logits.size(0), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
                logits.data_ptr<scalar_t>(), targets.const_data_ptr<int64_t>(),
                losses.data_ptr<Sum<scalar_t>>(), logits.size(1),
                static_cast<Sum<scalar_t>>(scale));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
  return losses;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("softmax_cross_entropy_", softmax_cross_entropy_cuda_);
}

}  // namespace ballast
