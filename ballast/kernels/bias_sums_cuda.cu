// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "ballast/kernels/bias_sums_paths.h"
#include "ballast/kernels/held_rows_cuda.cuh"
#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_access.h"

namespace ballast::kernels {
namespace {

using at::BFloat16;
using at::Tensor;

constexpr int kSize = kSizeOf<BFloat16>;  // columns of a lane
constexpr int kColumns = kLanes * kSize;  // of a block
constexpr int kThreads = kLanes * kWarpsPerBlock;
static_assert(kColumns == kThreads);
constexpr int kAtOnce = 4;                        // rows that a warp loads before it stores one
constexpr int kRound = kAtOnce * kWarpsPerBlock;  // rows of a block at a time
constexpr int kBlocksPerProcessor = 8;            // that there should be, for all to be busy

// A stack of matrices, each cut into chunks of rows: what a block sums up.
struct Chunks {
  int64_t rows, width;  // of a matrix
  int64_t rows_of_chunk, count;
};

// Keeps of a word's two elements those whose unit is on: not 0 or less.
__device__ uint32_t keep_active(uint32_t gradient, uint32_t unit) {
  const float low = __uint_as_float(unit << 16), high = __uint_as_float(unit & 0xffff0000u);
  return gradient & ((low <= 0 ? 0u : 0xffffu) | (high <= 0 ? 0u : 0xffff0000u));
}

// The sum of each column over a chunk's rows, to parts [E, chunks, width]; parts null: none.
template <bool kMasked>
__global__ void __launch_bounds__(kThreads)
    sum_chunks_kernel(Chunks chunks, BFloat16* y, const BFloat16* active, float* parts) {
  const int64_t column = (int64_t{blockIdx.x} * kLanes + threadIdx.x) * kSize;
  const int64_t begin = int64_t{blockIdx.z} * chunks.rows * chunks.width + column;
  const int64_t first = blockIdx.y * chunks.rows_of_chunk;
  const int64_t last = min(first + chunks.rows_of_chunk, chunks.rows);
  float sums[kSize] = {};
  // A column that is not there has no rows: its threads only take part in what all must.
  const int64_t end = column < chunks.width ? last : first;
  for (int64_t row = first + threadIdx.y; row < end; row += kRound) {
    Words gradient[kAtOnce], unit[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = begin + (row + i * kWarpsPerBlock) * chunks.width;
      const bool there = row + i * kWarpsPerBlock < end;
      gradient[i] = there ? load(y + at) : Words{};
      if constexpr (kMasked) unit[i] = there ? load(active + at) : Words{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if constexpr (kMasked) {
        for (int w = 0; w < 4; ++w)
          gradient[i].values[w] = keep_active(gradient[i].values[w], unit[i].values[w]);
        if (row + i * kWarpsPerBlock < end)
          store(y + begin + (row + i * kWarpsPerBlock) * chunks.width, gradient[i]);
      }
#pragma unroll
      for (int l = 0; l < kSize; ++l) sums[l] += number<BFloat16>(gradient[i], l);
    }
  }
  if (parts == nullptr) return;
  __shared__ float of_warps[kWarpsPerBlock][kSize][kLanes];
  for (int l = 0; l < kSize; ++l) of_warps[threadIdx.y][l][threadIdx.x] = sums[l];
  __syncthreads();
  // A thread has one column now: warp l those with remainder l.
  const int64_t mine = column + threadIdx.y;
  if (column >= chunks.width) return;
  float sum = 0;
  for (int warp = 0; warp < kWarpsPerBlock; ++warp) sum += of_warps[warp][threadIdx.y][threadIdx.x];
  parts[(blockIdx.z * chunks.count + blockIdx.y) * chunks.width + mine] = sum;
}

// Adds the chunks' sums to `sums`, whose rows lie `stride` apart, in a fixed order.
__global__ void __launch_bounds__(kThreads)
    add_chunks_kernel(Chunks chunks, const float* parts, BFloat16* sums, int64_t stride) {
  const int64_t column = int64_t{blockIdx.x} * kLanes + threadIdx.x;
  const float* const of_matrix = parts + blockIdx.y * chunks.count * chunks.width;
  float sum = 0;
  if (column < chunks.width) {
#pragma unroll 8
    for (int64_t chunk = threadIdx.y; chunk < chunks.count; chunk += kWarpsPerBlock)
      sum += of_matrix[chunk * chunks.width + column];
  }
  __shared__ float of_warps[kWarpsPerBlock][kLanes];
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= chunks.width) return;
  sum = 0;
  for (int warp = 0; warp < kWarpsPerBlock; ++warp) sum += of_warps[warp][threadIdx.x];
  BFloat16& to = sums[blockIdx.y * stride + column];
  to = static_cast<BFloat16>(static_cast<float>(to) + sum);
}

// Rows that can be loaded 16 bytes at a time, one after another.
bool has_whole_packs(const Tensor& x) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.is_contiguous() &&
         x.size(-1) % kSize == 0 && is_on_boundary(x);
}

bool suits(const Tensor& y, const OptionalTensor& active, const OptionalTensor& sum) {
  constexpr int64_t kMostMatrices = 65535;  // of a grid
  if ((y.dim() != 2 && y.dim() != 3) || !has_whole_packs(y)) return false;
  if (y.dim() == 3 && y.size(0) > kMostMatrices) return false;
  if (active && (active->sizes() != y.sizes() || !has_whole_packs(*active))) return false;
  return !sum || (sum->is_cuda() && sum->scalar_type() == at::kBFloat16 &&
                  sum->dim() == y.dim() - 1 && sum->size(-1) == y.size(-1) &&
                  (sum->dim() == 1 || sum->size(0) == y.size(0)) && sum->stride(-1) == 1);
}

Chunks chunks_of(const Tensor& y, int64_t matrices) {
  const int64_t rows = y.size(-2), width = y.size(-1);
  const int64_t wanted =
      int64_t{at::cuda::getCurrentDeviceProperties()->multiProcessorCount} * kBlocksPerProcessor;
  const int64_t columns = (width + kColumns - 1) / kColumns * matrices;
  const int64_t rounds = (rows + kRound - 1) / kRound;
  // As many chunks as make enough blocks, at least a round of rows each.
  const int64_t count = std::clamp<int64_t>((wanted + columns - 1) / columns, 1, rounds);
  const int64_t rows_of_chunk = (rounds + count - 1) / count * kRound;
  return {rows, width, rows_of_chunk, (rows + rows_of_chunk - 1) / rows_of_chunk};
}

}  // namespace

void mask_and_add_rows_cuda_(const Tensor& y, const OptionalTensor& active,
                             const OptionalTensor& sum) {
  if (y.numel() == 0 || (!active && !sum)) return;
  if (!suits(y, active, sum)) return plain_mask_and_add_rows(y, active, sum);
  const c10::cuda::CUDAGuard guard(y.device());
  const int64_t matrices = y.dim() == 3 ? y.size(0) : 1;
  const Chunks chunks = chunks_of(y, matrices);
  const auto stream = at::cuda::getCurrentCUDAStream();
  const Tensor parts =
      sum ? y.new_empty({matrices, chunks.count, chunks.width}, at::kFloat) : Tensor();
  float* const parts_data = sum ? parts.data_ptr<float>() : nullptr;
  const dim3 block(kLanes, kWarpsPerBlock);
  const dim3 grid(static_cast<unsigned>((chunks.width + kColumns - 1) / kColumns),
                  static_cast<unsigned>(chunks.count), static_cast<unsigned>(matrices));
  if (active) {
    sum_chunks_kernel<true><<<grid, block, 0, stream>>>(
        chunks, y.data_ptr<BFloat16>(), active->const_data_ptr<BFloat16>(), parts_data);
  } else {
    sum_chunks_kernel<false>
        <<<grid, block, 0, stream>>>(chunks, y.data_ptr<BFloat16>(), nullptr, parts_data);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (!sum) return;
  const dim3 grid_of_sums(static_cast<unsigned>((chunks.width + kLanes - 1) / kLanes),
                          static_cast<unsigned>(matrices));
  add_chunks_kernel<<<grid_of_sums, block, 0, stream>>>(
      chunks, parts_data, sum->data_ptr<BFloat16>(), sum->dim() == 2 ? sum->stride(0) : 0);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::kernels
