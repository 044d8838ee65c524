// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>

#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 16;  // several rounds of those that fit at a time

template <typename Working, typename Master>
struct Pointers {
  Working* working;  // null: the working copy is the master
  Master* master;
  Working* gradient;
  Master *first, *second;
};

struct Constants {
  double beta1, beta2, epsilon, weight_decay, rate;
  bool clear;
};

template <typename Master>
struct Factors {
  Master scale, decay, step_size, beta1, beta2, root_correction, epsilon;

  __device__ Factors(const Constants& c, const double* numbers, Master gradient_scale)
      : scale(gradient_scale),
        decay(Master(1 - numbers[0] * c.rate * c.weight_decay)),
        step_size(Master(numbers[0] * c.rate / numbers[1])),
        beta1(Master(c.beta1)),
        beta2(Master(c.beta2)),
        root_correction(Master(1 / sqrt(numbers[2]))),
        epsilon(Master(c.epsilon)) {}
};

// Neighbours that are touched once a step: they need not stay in a cache.
template <int kSize, typename Scalar>
__device__ Pack<Scalar, kSize> load_once(const Scalar* from) {
  using Whole = Pack<Scalar, kSize>;
  if constexpr (sizeof(Whole) == 16) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));
    return *reinterpret_cast<const Whole*>(&bits);
  } else if constexpr (sizeof(Whole) == 8) {
    const uint2 bits = __ldcs(reinterpret_cast<const uint2*>(from));
    return *reinterpret_cast<const Whole*>(&bits);
  } else {
    return *reinterpret_cast<const Whole*>(from);
  }
}

template <int kSize, typename Scalar>
__device__ void store_once(Scalar* to, const Pack<Scalar, kSize>& pack) {
  using Whole = Pack<Scalar, kSize>;
  if constexpr (sizeof(Whole) == 16) {
    __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(&pack));
  } else if constexpr (sizeof(Whole) == 8) {
    __stcs(reinterpret_cast<uint2*>(to), *reinterpret_cast<const uint2*>(&pack));
  } else {
    *reinterpret_cast<Whole*>(to) = pack;
  }
}

template <int kSize, typename Working, typename Master>
__device__ void update(const Pointers<Working, Master>& p, const Factors<Master>& f, int64_t i) {
  const auto gradient = load_once<kSize>(p.gradient + i);
  auto first = load_once<kSize>(p.first + i), second = load_once<kSize>(p.second + i),
       master = load_once<kSize>(p.master + i);
  Pack<Working, kSize> working;
#pragma unroll
  for (int l = 0; l < kSize; ++l) {
    const Master g = static_cast<Master>(gradient.values[l]) * f.scale;
    const Master m = f.beta1 * first.values[l] + (1 - f.beta1) * g;
    const Master v = f.beta2 * second.values[l] + (1 - f.beta2) * g * g;
    const Master w =
        master.values[l] * f.decay - f.step_size * m / (sqrt(v) * f.root_correction + f.epsilon);
    first.values[l] = m;
    second.values[l] = v;
    master.values[l] = w;
    working.values[l] = static_cast<Working>(w);
  }
  store_once(p.first + i, first);
  store_once(p.second + i, second);
  store_once(p.master + i, master);
  if (p.working != nullptr) *reinterpret_cast<Pack<Working, kSize>*>(p.working + i) = working;
}

// kSize neighbours a thread; the last of `size`, fewer than kSize, one each.
template <int kSize, typename Working, typename Master>
__global__ __launch_bounds__(kThreads) void adam_kernel(Pointers<Working, Master> p,
                                                        const double* numbers,
                                                        const Master* gradient_scale, Constants c,
                                                        int64_t size) {
  const Master scale = *gradient_scale;
  const bool moves = isfinite(scale);
  if (!moves && !c.clear) return;
  const Factors<Master> f(c, numbers, scale);
  const int64_t mine = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t packs = size / kSize;
  for (int64_t pack = mine; pack < packs; pack += int64_t{gridDim.x} * kThreads) {
    if (moves) update<kSize>(p, f, pack * kSize);
    if (c.clear) store_once(p.gradient + pack * kSize, Pack<Working, kSize>{});
  }
  const int64_t rest = packs * kSize + mine;
  if (rest < size) {
    if (moves) update<1>(p, f, rest);
    if (c.clear) p.gradient[rest] = Working(0);
  }
}

template <int kSize, typename Working, typename Master>
bool suits(const Pointers<Working, Master>& p) {
  const auto multiple = [](const void* address, size_t bytes) {
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
  };
  return multiple(p.working, sizeof(Working) * kSize) &&
         multiple(p.gradient, sizeof(Working) * kSize) &&
         multiple(p.master, sizeof(Master) * kSize) && multiple(p.first, sizeof(Master) * kSize) &&
         multiple(p.second, sizeof(Master) * kSize);
}

template <typename Working, typename Master>
void launch(const Pointers<Working, Master>& p, const Tensor& numbers, const Tensor& gradient_scale,
            const Constants& constants, int64_t size) {
  constexpr int kSize = 16 / sizeof(Master);
  const auto go = [&]<int kPack>(std::integral_constant<int, kPack>) {
    const int64_t wanted = (size / kPack + kThreads - 1) / kThreads;
    const int64_t most =
        int64_t{at::cuda::getCurrentDeviceProperties()->multiProcessorCount} * kBlocksPerProcessor;
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, most));
    adam_kernel<kPack><<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        p, numbers.const_data_ptr<double>(), gradient_scale.const_data_ptr<Master>(), constants,
        size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  suits<kSize>(p) ? go(std::integral_constant<int, kSize>{}) : go(std::integral_constant<int, 1>{});
}

void adam_cuda_(const Tensor& working, const Tensor& master, const Tensor& gradient,
                const Tensor& first_moment, const Tensor& second_moment, const Tensor& numbers,
                const Tensor& gradient_scale, double beta1, double beta2, double epsilon,
                double weight_decay, double rate, bool clear) {
  const c10::cuda::CUDAGuard guard(master.device());
  const int64_t size = master.numel();
  if (size == 0) return;
  const Constants constants{beta1, beta2, epsilon, weight_decay, rate, clear};
  const bool one = working.data_ptr() == master.data_ptr();
  AT_DISPATCH_FLOATING_TYPES(master.scalar_type(), "adam_", [&] {
    using master_t = scalar_t;
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, working.scalar_type(), "adam_", [&] {
      const Pointers<scalar_t, master_t> p{
          one ? nullptr : working.data_ptr<scalar_t>(), master.data_ptr<master_t>(),
          gradient.data_ptr<scalar_t>(), first_moment.data_ptr<master_t>(),
          second_moment.data_ptr<master_t>()};
      launch(p, numbers, gradient_scale, constants, size);
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) { library.impl("adam_", adam_cuda_); }

}  // namespace ballast::kernels
