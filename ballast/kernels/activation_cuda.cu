// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/activation_paths.h"
#include "ballast/kernels/held_rows_cuda.cuh"
#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/row_access.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kThreads = 256;

template <typename Sum>
__device__ Sum sigmoid(Sum x) {
  return Sum{1} / (Sum{1} + exp(-x));
}

// GELU's argument of tanh, and the derivative of that.
template <typename Sum>
struct TanhArgument {
  static constexpr double kScale = 0.79788456080286535588, kCube = 0.044715;
  __device__ static Sum at(Sum x) {
    return static_cast<Sum>(kScale) * (x + static_cast<Sum>(kCube) * x * x * x);
  }
  __device__ static Sum slope(Sum x) {
    return static_cast<Sum>(kScale) * (1 + static_cast<Sum>(3 * kCube) * x * x);
  }
};

// An activation of one number.
template <Activation kActivation, typename Sum>
__device__ Sum value_at(Sum x) {
  if constexpr (kActivation == Activation::kGelu) {
    return x * normcdf(x);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return x / 2 * (1 + tanh(TanhArgument<Sum>::at(x)));
  } else if constexpr (kActivation == Activation::kRelu2) {
    return x > 0 ? x * x : Sum{0};
  } else {
    return x > 0 ? x : Sum{0};
  }
}

// Its derivative.
template <Activation kActivation, typename Sum>
__device__ Sum slope_at(Sum x) {
  if constexpr (kActivation == Activation::kGelu) {
    constexpr double kDensityAtZero = 0.39894228040143267794;
    return normcdf(x) + x * static_cast<Sum>(kDensityAtZero) * exp(-x * x / 2);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    const Sum t = tanh(TanhArgument<Sum>::at(x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * TanhArgument<Sum>::slope(x);
  } else if constexpr (kActivation == Activation::kRelu2) {
    return x > 0 ? 2 * x : Sum{0};
  } else {
    return x > 0 ? Sum{1} : Sum{0};
  }
}

// Packs of the result, in the order of memory; where pack i lies in pairs of rows x [T, 2 F].
struct Packs {
  int64_t count, of_row;  // of_row: of F columns
  __device__ int64_t gate(int64_t i) const { return i / of_row * 2 * of_row + i % of_row; }
  __device__ int64_t up(int64_t i) const { return gate(i) + of_row; }
};

template <typename Scalar, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    activate_kernel(Packs packs, const Scalar* x, Scalar* y) {
  constexpr int kSize = kSizeOf<Scalar>;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= packs.count) return;
  RowSum<Scalar> values[kSize];
  if constexpr (kActivation == Activation::kSwiglu) {
    const Words gate = load(x + packs.gate(i) * kSize), up = load(x + packs.up(i) * kSize);
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      const RowSum<Scalar> g = number<Scalar>(gate, l);
      values[l] = g * sigmoid(g) * number<Scalar>(up, l);
    }
  } else {
    const Words words = load(x + i * kSize);
#pragma unroll
    for (int l = 0; l < kSize; ++l)
      values[l] = value_at<kActivation, RowSum<Scalar>>(number<Scalar>(words, l));
  }
  store(y + i * kSize, rounded<Scalar>(values));
}

template <typename Scalar, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    activate_backward_kernel(Packs packs, const Scalar* dy, const Scalar* x, Scalar* dx) {
  constexpr int kSize = kSizeOf<Scalar>;
  using Sum = RowSum<Scalar>;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= packs.count) return;
  const Words d = load(dy + i * kSize);
  if constexpr (kActivation == Activation::kSwiglu) {
    const Words gate = load(x + packs.gate(i) * kSize), up = load(x + packs.up(i) * kSize);
    Sum dgate[kSize], dup[kSize];
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      const Sum g = number<Scalar>(gate, l), s = sigmoid(g), along = number<Scalar>(d, l);
      dgate[l] = along * number<Scalar>(up, l) * s * (1 + g * (1 - s));
      dup[l] = along * g * s;
    }
    store(dx + packs.gate(i) * kSize, rounded<Scalar>(dgate));
    store(dx + packs.up(i) * kSize, rounded<Scalar>(dup));
  } else {
    const Words words = load(x + i * kSize);
    Sum gradient[kSize];
#pragma unroll
    for (int l = 0; l < kSize; ++l)
      gradient[l] = number<Scalar>(d, l) * slope_at<kActivation, Sum>(number<Scalar>(words, l));
    store(dx + i * kSize, rounded<Scalar>(gradient));
  }
}

// Calls work with the activation at compile time.
template <typename Work>
void with_activation(int64_t activation, const Work& work) {
  switch (static_cast<Activation>(activation)) {
    case Activation::kGelu:
      return work(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kGeluTanh:
      return work(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kRelu2:
      return work(std::integral_constant<Activation, Activation::kRelu2>());
    case Activation::kSwiglu:
      return work(std::integral_constant<Activation, Activation::kSwiglu>());
    default:
      return work(std::integral_constant<Activation, Activation::kRelu>());
  }
}

// Whether rows of F columns are whole packs of 16 bytes.
bool suits(const Tensor& x, int64_t columns) {
  return is_of_row_type(x) && columns * x.element_size() % kAccessBytes == 0 && is_on_boundary(x);
}

Packs packs_of(const Tensor& y) {
  const int64_t of_pack = 16 / y.element_size();
  return {y.numel() / of_pack, y.size(-1) / of_pack};
}
unsigned blocks_of(const Packs& packs) {
  return static_cast<unsigned>((packs.count + kThreads - 1) / kThreads);
}

}  // namespace

Tensor activate_cuda(const Tensor& given, int64_t activation) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() /= columns_taken(static_cast<Activation>(activation));
  if (!suits(x, shape.back())) return plain_activate(x, activation);
  Tensor y = x.new_empty(shape);
  const Packs packs = packs_of(y);
  if (packs.count == 0) return y;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "activate", [&] {
    with_activation(activation, [&](auto known) {
      activate_kernel<scalar_t, known()>
          <<<blocks_of(packs), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
              packs, x.const_data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
    });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor activate_backward_cuda(const Tensor& given_dy, const Tensor& given_x, int64_t activation) {
  const c10::cuda::CUDAGuard guard(given_x.device());
  const Tensor dy = given_dy.contiguous(), x = given_x.contiguous();
  if (!suits(x, dy.size(-1)) || !suits(dy, dy.size(-1)))
    return plain_activate_backward(dy, x, activation);
  Tensor dx = x.new_empty(x.sizes());
  const Packs packs = packs_of(dy);
  if (packs.count == 0) return dx;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "activate_backward", [&] {
    with_activation(activation, [&](auto known) {
      activate_backward_kernel<scalar_t, known()>
          <<<blocks_of(packs), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
              packs, dy.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
              dx.data_ptr<scalar_t>());
    });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

}  // namespace ballast::kernels
