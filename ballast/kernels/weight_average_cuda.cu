// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdint>

#include "ballast/kernels/operations_cuda.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 16;

template <typename Scalar>
__global__ __launch_bounds__(kThreads) void average_kernel(Scalar* average, const Scalar* weights,
                                                           const double* share,
                                                           const Scalar* gradient_scale,
                                                           int64_t size) {
  if (!isfinite(*gradient_scale)) return;
  const Scalar taken(*share);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads)
    average[i] += taken * (weights[i] - average[i]);
}

}  // namespace

void average_weights_cuda_(const Tensor& average, const Tensor& weights, const Tensor& share,
                           const Tensor& gradient_scale) {
  const c10::cuda::CUDAGuard guard(average.device());
  const int64_t size = average.numel();
  if (size == 0) return;
  const int64_t most =
      int64_t{at::cuda::getCurrentDeviceProperties()->multiProcessorCount} * kBlocksPerProcessor;
  const auto blocks =
      static_cast<unsigned>(std::clamp<int64_t>((size + kThreads - 1) / kThreads, 1, most));
  AT_DISPATCH_FLOATING_TYPES(average.scalar_type(), "average_weights_", [&] {
    average_kernel<<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        average.data_ptr<scalar_t>(), weights.const_data_ptr<scalar_t>(),
        share.const_data_ptr<double>(), gradient_scale.const_data_ptr<scalar_t>(), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace ballast::kernels
