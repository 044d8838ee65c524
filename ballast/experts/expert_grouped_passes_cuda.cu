// SPDX-License-Identifier: Apache-2.0
// The passes of expert_block_passes.h that grouped rows need beside those of all rows.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "ballast/experts/expert_slots_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::BFloat16;
using at::Tensor;
using kernels::OptionalTensor;

struct Ends {
  static constexpr int kMost = 512;
  int32_t values[kMost];
};
__global__ void set_ends_kernel(Ends ends, int count, int32_t* to) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = ends.values[i];
}

__global__ void padded_slots_kernel(Slots slots, int64_t block, int64_t* row_of_slot) {
  const int64_t slot = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (slot >= slots.experts * block) return;
  const int expert = static_cast<int>(slot / block);
  const int64_t row = slots.begin(expert) + slot % block;
  row_of_slot[slot] = row < slots.end(expert) ? row : -1;
}

__global__ void bias_relu_kernel(Slots slots, BFloat16* y, Stack bias, int64_t width) {
  const int64_t slot = kernels::row_of_warp();
  if (slot >= slots.count) return;
  const int expert = slots.expert(slot);
  y += slot * width;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kStep) {
    const Unit values = load(y + i), b = load(bias.of(expert) + i);
    float result[kSize];
    for (int l = 0; l < kSize; ++l) {
      const float sum = number(values, l) + number(b, l);
      result[l] = sum < 0 ? 0.0f : sum;  // what is no number stays so
    }
    store(y + i, rounded(result));
  }
}

__global__ void add_kernel(Slots slots, BFloat16* sum, int64_t stride, const BFloat16* terms,
                           int64_t size) {
  const int expert = blockIdx.y;
  if (slots.begin(expert) == slots.end(expert)) return;  // its terms are undefined
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  if (i >= size) return;
  const Unit a = load(sum + expert * stride + i), b = load(terms + expert * size + i);
  store(sum + expert * stride + i, kernels::sum_of<BFloat16>(a, b));
}

// Columns are summed over chunks of rows, of whatever expert, so that all blocks have the same
// work. As with Part, a chunk's part of an expert's sum has the number chunk + expert.
constexpr int kRowsOfChunk = 256;
constexpr int kPair = 2;  // neighbouring columns of one lane
constexpr int kColumns = kernels::kLanes * kPair;
using Two = kernels::Pack<BFloat16, kPair>;

// dactive = 0 where a unit was not active; adds up the columns of one row.
__device__ void mask_row(const BFloat16* active, BFloat16* dactive, float (&sums)[kPair]) {
  const Two unit = *reinterpret_cast<const Two*>(active);
  Two gradient = *reinterpret_cast<const Two*>(dactive);
  for (int l = 0; l < kPair; ++l) {
    if (static_cast<float>(unit.values[l]) <= 0) gradient.values[l] = BFloat16(0.0f);
    sums[l] += static_cast<float>(gradient.values[l]);
  }
  *reinterpret_cast<Two*>(dactive) = gradient;
}

__global__ void mask_chunks_kernel(Slots slots, const BFloat16* active, BFloat16* dactive,
                                   int64_t width, float* parts) {
  __shared__ float of_warps[kernels::kWarpsPerBlock][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x * kPair;
  const int64_t chunk = blockIdx.y, last = min((chunk + 1) * kRowsOfChunk, slots.count);
  int64_t row = chunk * kRowsOfChunk;
  for (int expert = slots.expert(row); row < last && expert < slots.experts; ++expert) {
    const int64_t end = min(slots.end(expert), last);
    if (end <= row) continue;
    float sums[kPair] = {};
    if (column < width) {
#pragma unroll 4
      for (int64_t r = row + threadIdx.y; r < end; r += kernels::kWarpsPerBlock)
        mask_row(active + r * width + column, dactive + r * width + column, sums);
    }
    for (int l = 0; l < kPair; ++l) of_warps[threadIdx.y][threadIdx.x * kPair + l] = sums[l];
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
      for (int l = 0; l < kPair; ++l) {
        float sum = 0;
        for (int warp = 0; warp < kernels::kWarpsPerBlock; ++warp)
          sum += of_warps[warp][threadIdx.x * kPair + l];
        parts[(chunk + expert) * width + column + l] = sum;
      }
    }
    __syncthreads();
    row = end;
  }
}

__global__ void add_chunks_kernel(Slots slots, int64_t width, const float* parts, BFloat16* sum,
                                  int64_t stride) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int expert = blockIdx.y;
  const int64_t begin = slots.begin(expert), end = slots.end(expert);
  if (column >= width || begin == end) return;
  float total = 0;
  for (int64_t chunk = begin / kRowsOfChunk; chunk <= (end - 1) / kRowsOfChunk; ++chunk)
    total += parts[(chunk + expert) * width + column];
  BFloat16& to = sum[expert * stride + column];
  to = static_cast<float>(to) + total;
}

unsigned whole_blocks(int64_t count, int64_t of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

}  // namespace

// As arguments of a kernel: a copy from the host would wait, or need memory that stays.
Tensor expert_ends_cuda(const Tensor& rows, at::IntArrayRef rows_of_expert) {
  const c10::cuda::CUDAGuard guard(rows.device());
  Tensor ends = rows.new_empty({static_cast<int64_t>(rows_of_expert.size())}, at::kInt);
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
  return ends;
}

Tensor expert_padded_slots_cuda(const Tensor& ends, int64_t block) {
  const c10::cuda::CUDAGuard guard(ends.device());
  constexpr int kThreads = 256;
  Tensor row_of_slot = ends.new_empty({ends.size(0) * block}, at::kLong);
  padded_slots_kernel<<<whole_blocks(row_of_slot.numel(), kThreads), kThreads, 0,
                        at::cuda::getCurrentCUDAStream()>>>(slots_of({}, ends, 0, ends.size(0)),
                                                            block, row_of_slot.data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return row_of_slot;
}

void expert_bias_relu_cuda_(const Tensor& y, const Tensor& ends, const Tensor& bias) {
  const c10::cuda::CUDAGuard guard(y.device());
  const Slots slots = slots_of({}, ends, y.size(0), ends.size(0));
  bias_relu_kernel<<<kernels::blocks_for(slots.count), kBlock, 0,
                     at::cuda::getCurrentCUDAStream()>>>(slots, y.data_ptr<BFloat16>(), raw(bias),
                                                         y.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void expert_take_back_relu_cuda_(const Tensor& dactive, const Tensor& active, const Tensor& ends,
                                 const OptionalTensor& sum) {
  const c10::cuda::CUDAGuard guard(dactive.device());
  const Slots slots = slots_of({}, ends, dactive.size(0), ends.size(0));
  const int64_t width = dactive.size(1);
  const unsigned chunks = whole_blocks(slots.count, kRowsOfChunk);
  const Tensor parts = dactive.new_empty({int64_t{chunks} + slots.experts, width}, at::kFloat);
  const auto stream = at::cuda::getCurrentCUDAStream();
  mask_chunks_kernel<<<dim3(whole_blocks(width, kColumns), chunks), kBlock, 0, stream>>>(
      slots, active.const_data_ptr<BFloat16>(), dactive.data_ptr<BFloat16>(), width,
      parts.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (!sum) return;
  constexpr int kThreads = 128;
  const dim3 grid(whole_blocks(width, kThreads), static_cast<unsigned>(slots.experts));
  add_chunks_kernel<<<grid, kThreads, 0, stream>>>(slots, width, parts.const_data_ptr<float>(),
                                                   sum->data_ptr<BFloat16>(), sum->stride(0));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void expert_add_cuda_(const Tensor& sum, const Tensor& terms, const Tensor& ends) {
  const c10::cuda::CUDAGuard guard(sum.device());
  constexpr int kThreads = 256;
  const int64_t size = terms.numel() / terms.size(0);
  const dim3 grid(whole_blocks(size, kThreads * kSize), static_cast<unsigned>(terms.size(0)));
  add_kernel<<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      slots_of({}, ends, 0, ends.size(0)), sum.data_ptr<BFloat16>(), sum.stride(0),
      terms.const_data_ptr<BFloat16>(), size);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::experts
