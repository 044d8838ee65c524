// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdint>

#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kThreads = 256;
constexpr int kAtOnce = 2;  // packs of a thread, all loaded before one is stored

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

template <int kSize, typename Scalar>
__device__ Pack<Scalar, kSize> load_pack(const Scalar* from) {
  return *reinterpret_cast<const Pack<Scalar, kSize>*>(from);
}
template <int kSize, typename Scalar>
__device__ void store_pack(Scalar* to, const Pack<Scalar, kSize>& pack) {
  *reinterpret_cast<Pack<Scalar, kSize>*>(to) = pack;
}

// kSize neighbours of all buffers.
template <int kSize, typename Working, typename Master>
struct Neighbours {
  Pack<Working, kSize> gradient;
  Pack<Master, kSize> first, second, master;

  __device__ void load(const Pointers<Working, Master>& p, int64_t i) {
    gradient = load_pack<kSize>(p.gradient + i);
    first = load_pack<kSize>(p.first + i);
    second = load_pack<kSize>(p.second + i);
    master = load_pack<kSize>(p.master + i);
  }
  __device__ void move_and_store(const Pointers<Working, Master>& p, const Factors<Master>& f,
                                 int64_t i) {
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
    store_pack(p.first + i, first);
    store_pack(p.second + i, second);
    store_pack(p.master + i, master);
    if (p.working != nullptr) store_pack(p.working + i, working);
  }
};

// kAtOnce times kSize neighbours a thread; the last of `size`, fewer than kSize, one each. Accesses
// are plain ones: with the hint that nothing is read again the memory is slower.
template <int kSize, typename Working, typename Master>
__global__ __launch_bounds__(kThreads) void adam_kernel(Pointers<Working, Master> p,
                                                        const double* numbers,
                                                        const Master* gradient_scale, Constants c,
                                                        int64_t size) {
  const Master scale = *gradient_scale;
  const bool moves = isfinite(scale);
  if (!moves && !c.clear) return;
  const Factors<Master> f(c, numbers, scale);
  const int64_t packs = size / kSize;
  const int64_t begin = int64_t{blockIdx.x} * kThreads * kAtOnce + threadIdx.x;
  const auto for_each = [&](const auto& work) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t pack = begin + k * kThreads;
      if (pack < packs) work(k, pack * kSize);
    }
  };
  if (moves) {
    Neighbours<kSize, Working, Master> here[kAtOnce];
    for_each([&](int k, int64_t i) { here[k].load(p, i); });
    for_each([&](int k, int64_t i) { here[k].move_and_store(p, f, i); });
  }
  if (c.clear)
    for_each([&](int, int64_t i) { store_pack(p.gradient + i, Pack<Working, kSize>{}); });
  const int64_t rest = packs * kSize + begin;
  if (begin < kThreads && rest < size) {
    Neighbours<1, Working, Master> one;
    one.load(p, rest);
    if (moves) one.move_and_store(p, f, rest);
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
    const int64_t of_block = int64_t{kThreads} * kAtOnce * kPack;
    const auto blocks =
        static_cast<unsigned>(std::max<int64_t>(1, (size + of_block - 1) / of_block));
    adam_kernel<kPack><<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        p, numbers.const_data_ptr<double>(), gradient_scale.const_data_ptr<Master>(), constants,
        size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  suits<kSize>(p) ? go(std::integral_constant<int, kSize>{}) : go(std::integral_constant<int, 1>{});
}

}  // namespace

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

}  // namespace ballast::kernels
