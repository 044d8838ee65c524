// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <tuple>

#include "ballast/kernels/operations_cuda.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

// One thread; what it decides is said in gradient_scale.cpp.
template <typename Scalar>
__global__ void gradient_scale_kernel(const double* sums, const double* limit, double clip_norm,
                                      bool over_all, Scalar* scale, double* norm_out) {
  const double shared = hypot(sqrt(sums[1]), sums[2]), experts = sqrt(sums[3]);
  const double norm = over_all ? hypot(shared, experts) : shared;
  const bool is_good = isfinite(sums[0]) && isfinite(norm) && isfinite(experts) && norm <= *limit;
  const double shorter = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1.0;
  *scale = static_cast<Scalar>(is_good ? fmin(shorter, 1.0) : nan(""));
  *norm_out = norm;
}

}  // namespace

std::tuple<Tensor, Tensor> gradient_scale_cuda(const Tensor& sums, const Tensor& limit,
                                               double clip_norm, bool over_all,
                                               at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(sums.device());
  Tensor scale = sums.new_empty({}, dtype), norm = sums.new_empty({1});
  AT_DISPATCH_FLOATING_TYPES(dtype, "gradient_scale", [&] {
    gradient_scale_kernel<scalar_t><<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(
        sums.const_data_ptr<double>(), limit.const_data_ptr<double>(), clip_norm, over_all,
        scale.data_ptr<scalar_t>(), norm.data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {scale, norm};
}

}  // namespace ballast::kernels
