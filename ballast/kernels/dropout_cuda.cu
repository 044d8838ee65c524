// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/kernels/dropout_parts.h"
#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kThreads = 256;

template <typename Scalar>
struct LeaveOut {
  const Scalar* x;
  Scalar* y;
  int64_t count, first;  // first: the index of x[0] among all rows
  const int64_t* key;
  int64_t place;
  double part;
};

template <typename Scalar>
__global__ void __launch_bounds__(kThreads) leave_out_kernel(LeaveOut<Scalar> at) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= at.count) return;
  const DropoutMask mask = DropoutMask::of(static_cast<uint64_t>(*at.key), at.place, at.part);
  const auto scale = static_cast<RowSum<Scalar>>(1 / (1 - at.part));
  at.y[i] = mask.keeps(at.first + i)
                ? static_cast<Scalar>(static_cast<RowSum<Scalar>>(at.x[i]) * scale)
                : Scalar(0);
}

}  // namespace

Tensor leave_out_cuda(const Tensor& given, const Tensor& key, int64_t place, int64_t first_row,
                      double part) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous(), y = x.new_empty(x.sizes());
  if (x.numel() == 0) return y;
  const auto blocks = static_cast<unsigned>((x.numel() + kThreads - 1) / kThreads);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "leave_out", [&] {
    leave_out_kernel<scalar_t><<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        {x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), x.numel(),
         first_row * x.size(1), key.const_data_ptr<int64_t>(), place, part});
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace ballast::kernels
