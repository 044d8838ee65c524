// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>

#include "ballast/kernels/expert_places_cuda.cuh"
#include "ballast/kernels/expert_row_passes_cuda.cuh"

namespace ballast {
namespace {

using at::BFloat16;
using at::Tensor;

constexpr float kEpsilon = 1e-5f;

struct Ends {
  static constexpr int kMost = 512;
  int32_t values[kMost];
};
__global__ void set_ends_kernel(Ends ends, int count, int32_t* to) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = ends.values[i];
}

__global__ void normalize_kernel(Places at, const BFloat16* x, Stack weight, Stack bias,
                                 int64_t width, BFloat16* normed, float* means, float* inverses) {
  const int64_t place = row_of_warp();
  if (place >= at.places) return;
  const auto [expert, row] = standing_at(at, place);
  BFloat16* const to = normed + place * width;
  const int64_t first = threadIdx.x * kSize;
  if (row < 0) {
    for (int64_t i = first; i < width; i += kStep) store(to + i, Unit{});
    return;
  }
  x += row * width;
  float sum = 0;
  for (int64_t i = first; i < width; i += kStep) {
    const Unit values = load(x + i);
    for (int l = 0; l < kSize; ++l) sum += number(values, l);
  }
  const float mean = sum_over_warp(sum) / width;
  float squares = 0;
  for (int64_t i = first; i < width; i += kStep) {
    const Unit values = load(x + i);
    for (int l = 0; l < kSize; ++l)
      squares += (number(values, l) - mean) * (number(values, l) - mean);
  }
  const float inverse = rsqrtf(sum_over_warp(squares) / width + kEpsilon);
  for (int64_t i = first; i < width; i += kStep) {
    const Unit values = load(x + i), w = load(weight.of(expert) + i), b = load(bias.of(expert) + i);
    Unit result;
    for (int l = 0; l < kSize; ++l)
      result.values[l] = (number(values, l) - mean) * inverse * number(w, l) + number(b, l);
    store(to + i, result);
  }
  if (threadIdx.x == 0) {
    means[row] = mean;
    inverses[row] = inverse;
  }
}

__global__ void bias_relu_kernel(Places at, BFloat16* y, Stack bias, int64_t width) {
  const int64_t place = row_of_warp();
  if (place >= at.places) return;
  const auto [expert, row] = standing_at(at, place);
  if (row < 0) return;
  y += place * width;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep) {
    const Unit values = load(y + i), b = load(bias.of(expert) + i);
    Unit result;
    for (int l = 0; l < kSize; ++l) {
      const float sum = number(values, l) + number(b, l);
      result.values[l] = sum < 0 ? 0.0f : sum;  // what is no number stays so
    }
    store(y + i, result);
  }
}

__global__ void residual_bias_kernel(Places at, const BFloat16* x, const BFloat16* y, Stack bias,
                                     int64_t width, BFloat16* to) {
  const int64_t place = row_of_warp();
  if (place >= at.places) return;
  const auto [expert, row] = standing_at(at, place);
  if (row < 0) return;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep) {
    const Unit a = load(x + row * width + i), b = load(y + place * width + i),
               c = load(bias.of(expert) + i);
    Unit result;
    for (int l = 0; l < kSize; ++l) result.values[l] = number(a, l) + number(b, l) + number(c, l);
    store(to + row * width + i, result);
  }
}

__global__ void to_places_kernel(Places at, const BFloat16* x, int64_t width, BFloat16* to) {
  const int64_t place = row_of_warp();
  if (place >= at.places) return;
  const int64_t row = standing_at(at, place).row;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep)
    store(to + place * width + i, row < 0 ? Unit{} : load(x + row * width + i));
}

__global__ void normalize_backward_kernel(Places at, NormBack in, Stack weight, BFloat16* dx) {
  const int64_t place = row_of_warp(), width = in.width;
  if (place >= at.places) return;
  const auto [expert, row] = standing_at(at, place);
  if (row < 0) return;
  const float mean = in.mean[row], inverse = in.inverse[row];
  float along_ones = 0, along_x = 0;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep) {
    const Unit d = load(in.dnormed + place * width + i), x = load(in.x + row * width + i),
               w = load(weight.of(expert) + i);
    for (int l = 0; l < kSize; ++l) {
      const float scaled = number(d, l) * number(w, l);
      along_ones += scaled;
      along_x += scaled * (number(x, l) - mean) * inverse;
    }
  }
  along_ones = sum_over_warp(along_ones) / width;
  along_x = sum_over_warp(along_x) / width;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep) {
    const Unit d = load(in.dnormed + place * width + i), x = load(in.x + row * width + i),
               w = load(weight.of(expert) + i), dy = load(in.dy + row * width + i);
    Unit result;
    for (int l = 0; l < kSize; ++l) {
      const float centred = (number(x, l) - mean) * inverse;
      result.values[l] =
          number(dy, l) + inverse * (number(d, l) * number(w, l) - along_ones - centred * along_x);
    }
    store(dx + row * width + i, result);
  }
}

__global__ void add_kernel(const int32_t* ends, BFloat16* sum, int64_t stride,
                           const BFloat16* terms, int64_t size) {
  const int expert = blockIdx.y;
  if (ends[expert] == (expert == 0 ? 0 : ends[expert - 1])) return;
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  if (i >= size) return;
  const Unit a = load(sum + expert * stride + i), b = load(terms + expert * size + i);
  Unit result;
  for (int l = 0; l < kSize; ++l) result.values[l] = number(a, l) + number(b, l);
  store(sum + expert * stride + i, result);
}

}  // namespace

void set_ends(const Tensor& ends, const std::vector<int64_t>& rows_of_expert) {
  // As an argument of a kernel: a copy from the host would wait, or need memory that stays.
  int64_t end = 0;
  for (size_t first = 0; first < rows_of_expert.size(); first += Ends::kMost) {
    const size_t count = std::min<size_t>(Ends::kMost, rows_of_expert.size() - first);
    Ends values;
    for (size_t i = 0; i < count; ++i) {
      end += rows_of_expert[first + i];
      values.values[i] = static_cast<int32_t>(end);
    }
    set_ends_kernel<<<1, Ends::kMost, 0, at::cuda::getCurrentCUDAStream()>>>(
        values, static_cast<int>(count), ends.data_ptr<int32_t>() + first);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
}

NormedRows normalize_by_expert(const RowPlaces& at, const Tensor& x, const Tensor& weight,
                               const Tensor& bias) {
  const auto floats = x.options().dtype(at::kFloat);
  NormedRows result{at::empty({at.places(), x.size(1)}, x.options()), at::empty({at.rows}, floats),
                    at::empty({at.rows}, floats)};
  normalize_kernel<<<blocks_for(at.places()), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
      raw(at), x.const_data_ptr<BFloat16>(), raw(weight), raw(bias), x.size(1),
      result.normed.data_ptr<BFloat16>(), result.mean.data_ptr<float>(),
      result.inverse.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

void add_bias_relu(const RowPlaces& at, const Tensor& y, const Tensor& bias) {
  bias_relu_kernel<<<blocks_for(at.places()), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
      raw(at), y.data_ptr<BFloat16>(), raw(bias), y.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor add_residual_bias(const RowPlaces& at, const Tensor& x, const Tensor& y,
                         const Tensor& bias) {
  Tensor result = at::empty_like(x);
  residual_bias_kernel<<<blocks_for(at.places()), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
      raw(at), x.const_data_ptr<BFloat16>(), y.const_data_ptr<BFloat16>(), raw(bias), x.size(1),
      result.data_ptr<BFloat16>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

Tensor to_places(const RowPlaces& at, const Tensor& x) {
  if (at.block == 0) return x;
  Tensor result = at::empty({at.places(), x.size(1)}, x.options());
  to_places_kernel<<<blocks_for(at.places()), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
      raw(at), x.const_data_ptr<BFloat16>(), x.size(1), result.data_ptr<BFloat16>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

void add_to_experts(const Tensor& sum, const Tensor& terms, const Tensor& ends) {
  constexpr int kThreads = 256;
  const int64_t size = terms.numel() / terms.size(0);
  const dim3 grid(static_cast<unsigned>((size + kThreads * kSize - 1) / (kThreads * kSize)),
                  static_cast<unsigned>(terms.size(0)));
  add_kernel<<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      ends.const_data_ptr<int32_t>(), sum.data_ptr<BFloat16>(), sum.stride(0),
      terms.const_data_ptr<BFloat16>(), size);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor normalize_by_expert_backward(const RowPlaces& at, const NormGradient& in) {
  Tensor dx = at::empty_like(in.x);
  normalize_backward_kernel<<<blocks_for(at.places()), kBlock, 0,
                              at::cuda::getCurrentCUDAStream()>>>(raw(at), raw(in), raw(in.weight),
                                                                  dx.data_ptr<BFloat16>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

}  // namespace ballast
