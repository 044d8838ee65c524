// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <cmath>

namespace ballast {
namespace {

using at::Tensor;

template <typename Master>
struct Factors {
  Master decay, step_size, beta1, beta2, root_correction, epsilon;
};

// One pass: moments, master and working copy. A scale that is not finite leaves everything as it
// is.
template <typename Working, typename Master>
__global__ void adam_kernel(Working* working, Master* master, const Working* gradient,
                            Master* first, Master* second, const Master* gradient_scale,
                            Factors<Master> f, int64_t size) {
  const Master scale = *gradient_scale;
  if (!isfinite(scale)) return;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * blockDim.x) {
    const Master g = static_cast<Master>(gradient[i]) * scale;
    const Master m = f.beta1 * first[i] + (1 - f.beta1) * g;
    const Master v = f.beta2 * second[i] + (1 - f.beta2) * g * g;
    const Master w =
        master[i] * f.decay - f.step_size * m / (sqrt(v) * f.root_correction + f.epsilon);
    first[i] = m;
    second[i] = v;
    master[i] = w;
    working[i] = static_cast<Working>(w);
  }
}

void adam_cuda_(const Tensor& working, const Tensor& master, const Tensor& gradient,
                const Tensor& first_moment, const Tensor& second_moment,
                const Tensor& gradient_scale, double learning_rate, double beta1, double beta2,
                double epsilon, double weight_decay, int64_t step) {
  const c10::cuda::CUDAGuard guard(master.device());
  TORCH_CHECK(gradient_scale.scalar_type() == master.scalar_type() && gradient_scale.is_cuda(),
              "adam_: want gradient_scale on the GPU in the master's dtype");
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  const int64_t size = master.numel();
  if (size == 0) return;
  const int threads = 256;
  const auto blocks = static_cast<int>(std::min<int64_t>((size + threads - 1) / threads, 4096));
  AT_DISPATCH_FLOATING_TYPES(master.scalar_type(), "adam_", [&] {
    using master_t = scalar_t;
    const Factors<master_t> f{master_t(1 - learning_rate * weight_decay),
                              master_t(learning_rate / correction1),
                              master_t(beta1),
                              master_t(beta2),
                              master_t(1 / std::sqrt(correction2)),
                              master_t(epsilon)};
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, working.scalar_type(), "adam_", [&] {
      adam_kernel<scalar_t, master_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
          working.data_ptr<scalar_t>(), master.data_ptr<master_t>(),
          gradient.const_data_ptr<scalar_t>(), first_moment.data_ptr<master_t>(),
          second_moment.data_ptr<master_t>(), gradient_scale.const_data_ptr<master_t>(), f, size);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) { library.impl("adam_", adam_cuda_); }

}  // namespace ballast
