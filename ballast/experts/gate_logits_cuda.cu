// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/experts/operations_cuda.h"

namespace ballast::experts {
namespace {

using at::Tensor;

constexpr int kThreads = 256;

unsigned blocks_of(int64_t numbers) {
  return static_cast<unsigned>((numbers + kThreads - 1) / kThreads);
}

__device__ int64_t number_of_thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

// x [T, E] -> parts [T, 2 E].
__global__ void __launch_bounds__(kThreads)
    parts_kernel(int64_t numbers, int experts, const float* x, c10::BFloat16* parts) {
  const int64_t i = number_of_thread();
  if (i >= numbers) return;
  const int64_t first = i + i / experts * experts;  // 2 E a row
  const auto large = static_cast<c10::BFloat16>(x[i]);
  parts[first] = large;
  parts[first + experts] = static_cast<c10::BFloat16>(x[i] - static_cast<float>(large));
}

template <typename Scalar>
__global__ void __launch_bounds__(kThreads)
    add_both_kernel(int64_t numbers, const float* terms, Scalar* sum) {
  const int64_t i = number_of_thread();
  if (i < numbers)
    sum[i] = static_cast<Scalar>(static_cast<float>(sum[i]) + (terms[i] + terms[numbers + i]));
}

}  // namespace

Tensor in_two_parts_cuda(const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t experts = x.size(1);
  const Tensor parts = x.new_empty({x.size(0), 2 * experts}, x.options().dtype(at::kBFloat16));
  if (x.numel() == 0) return parts;
  parts_kernel<<<blocks_of(x.numel()), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.numel(), static_cast<int>(experts), x.const_data_ptr<float>(),
      parts.mutable_data_ptr<c10::BFloat16>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return parts;
}

void add_both_cuda_(const Tensor& sum, const Tensor& terms) {
  const c10::cuda::CUDAGuard guard(sum.device());
  TORCH_CHECK(sum.is_contiguous() && terms.is_contiguous() && terms.numel() == 2 * sum.numel(),
              "add_both_: want sum [E, D] and terms [2 E, D], got ", sum.sizes(), " and ",
              terms.sizes());
  if (sum.numel() == 0) return;
  const auto add_to = [&](auto* numbers) {
    add_both_kernel<<<blocks_of(sum.numel()), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        sum.numel(), terms.const_data_ptr<float>(), numbers);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  if (sum.scalar_type() == at::kFloat)
    add_to(sum.mutable_data_ptr<float>());
  else
    add_to(sum.mutable_data_ptr<c10::BFloat16>());
}

}  // namespace ballast::experts
