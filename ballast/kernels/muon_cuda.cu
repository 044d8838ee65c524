// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
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
constexpr int kElementsPerThread = 4;
constexpr int64_t kMostMatrices = 65535;  // of a grid's second dimension

// A row of blocks for each matrix; where there are more, they take turns.
dim3 grid_of(const Tensor& directions) {
  const int64_t each = directions.size(1) * directions.size(2);
  const int64_t of_block = int64_t{kThreads} * kElementsPerThread;
  return {static_cast<unsigned>(std::max<int64_t>(1, (each + of_block - 1) / of_block)),
          static_cast<unsigned>(std::min(directions.size(0), kMostMatrices))};
}

struct Matrices {
  const int64_t* offsets;
  int64_t count, each;

  // `work` is given an element's place in the flat buffers and among the directions.
  template <typename Work>
  __device__ void for_each(const Work& work) const {
    for (int64_t matrix = blockIdx.y; matrix < count; matrix += gridDim.y) {
      const int64_t offset = offsets[matrix], first = matrix * each;
      for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < each;
           i += int64_t{gridDim.x} * kThreads)
        work(offset + i, first + i);
    }
  }
};

Matrices matrices_of(const Tensor& offsets, const Tensor& directions) {
  return {offsets.const_data_ptr<int64_t>(), directions.size(0),
          directions.size(1) * directions.size(2)};
}

template <typename Working, typename Master>
__global__ __launch_bounds__(kThreads) void momentum_kernel(Matrices matrices, Working* gradient,
                                                            Master* momentum, Working* directions,
                                                            const Master* gradient_scale,
                                                            double decay) {
  const Master scale = *gradient_scale, kept(decay), taken(1 - decay);
  const bool moves = isfinite(scale);
  matrices.for_each([&](int64_t place, int64_t i) {
    Master direction = 0;
    if (moves) {
      const Master now = taken * (static_cast<Master>(gradient[place]) * scale);
      const Master next = kept * momentum[place] + now;
      direction = kept * next + now;
      momentum[place] = next;
    }
    directions[i] = static_cast<Working>(direction);
    gradient[place] = Working(0);
  });
}

struct Step {
  double weight_decay, rate, size;
};

template <typename Working, typename Master>
__global__ __launch_bounds__(kThreads) void move_kernel(Matrices matrices, Working* working,
                                                        Master* master, const Working* directions,
                                                        const double* numbers,
                                                        const Master* gradient_scale, Step step) {
  if (!isfinite(*gradient_scale)) return;
  const double learning_rate = *numbers * step.rate;
  const Master kept(1 - learning_rate * step.weight_decay), size(learning_rate * step.size);
  matrices.for_each([&](int64_t place, int64_t i) {
    const Master w = master[place] * kept - size * static_cast<Master>(directions[i]);
    master[place] = w;
    if (working != nullptr) working[place] = static_cast<Working>(w);
  });
}

// With the types of the working copy and of the master.
template <typename Work>
void dispatch(const Tensor& working, const Tensor& master, const Work& work) {
  AT_DISPATCH_FLOATING_TYPES(master.scalar_type(), "muon", [&] {
    using master_t = scalar_t;
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, working.scalar_type(), "muon",
                                   [&] { work(scalar_t{}, master_t{}); });
  });
}

}  // namespace

void muon_momentum_cuda_(const Tensor& gradient, const Tensor& momentum, const Tensor& offsets,
                         const Tensor& directions, const Tensor& gradient_scale, double decay) {
  const c10::cuda::CUDAGuard guard(gradient.device());
  if (directions.numel() == 0) return;
  const auto launch = [&]<typename Working, typename Master>(Working, Master) {
    momentum_kernel<<<grid_of(directions), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        matrices_of(offsets, directions), gradient.data_ptr<Working>(), momentum.data_ptr<Master>(),
        directions.data_ptr<Working>(), gradient_scale.const_data_ptr<Master>(), decay);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  dispatch(gradient, momentum, launch);
}

void muon_move_cuda_(const Tensor& working, const Tensor& master, const Tensor& offsets,
                     const Tensor& directions, const Tensor& numbers, const Tensor& gradient_scale,
                     double weight_decay, double rate, double size) {
  const c10::cuda::CUDAGuard guard(master.device());
  if (directions.numel() == 0) return;
  const bool one = working.data_ptr() == master.data_ptr();
  const auto launch = [&]<typename Working, typename Master>(Working, Master) {
    move_kernel<<<grid_of(directions), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        matrices_of(offsets, directions), one ? nullptr : working.data_ptr<Working>(),
        master.data_ptr<Master>(), directions.const_data_ptr<Working>(),
        numbers.const_data_ptr<double>(), gradient_scale.const_data_ptr<Master>(),
        Step{weight_decay, rate, size});
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  dispatch(working, master, launch);
}

}  // namespace ballast::kernels
