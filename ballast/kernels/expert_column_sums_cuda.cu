// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>

#include "ballast/kernels/expert_places_cuda.cuh"

namespace ballast {
namespace {

using at::BFloat16;
using at::Tensor;

// Rows are summed in chunks, of whatever expert, so that all blocks have the same work. A chunk's
// part of an expert's sum is kept at index chunk + expert: no two parts share one, because chunks
// and experts both only ever grow along the rows.
constexpr int kRowsPerChunk = 256;
constexpr int kPair = 2;  // neighbouring columns of one lane
constexpr int kColumns = kLanes * kPair;
using Two = Pack<BFloat16, kPair>;

// Visit: sums of kSums quantities by visit(row, place, column, sums[kSums][kPair]).
template <int kSums, typename Visit>
__global__ void sum_chunks_kernel(Places at, int64_t width, float* parts, Visit visit) {
  __shared__ float of_warps[kSums][kWarpsPerBlock][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x * kPair;
  const int64_t chunk = blockIdx.y, last = min((chunk + 1) * kRowsPerChunk, at.rows);
  int64_t row = chunk * kRowsPerChunk;
  for (int expert = expert_of_row(at, row); row < last && expert < at.experts; ++expert) {
    const int64_t end = min(static_cast<int64_t>(at.ends[expert]), last);
    if (end <= row) continue;
    const int64_t shift = at.block == 0 ? 0 : expert * at.block - begin_of(at, expert);
    float sums[kSums][kPair] = {};
    if (column < width) {
#pragma unroll 4
      for (int64_t r = row + threadIdx.y; r < end; r += kWarpsPerBlock)
        visit(r, r + shift, column, sums);
    }
    for (int q = 0; q < kSums; ++q) {
      for (int l = 0; l < kPair; ++l)
        of_warps[q][threadIdx.y][threadIdx.x * kPair + l] = sums[q][l];
    }
    __syncthreads();
    if (threadIdx.y < kSums && column < width) {
      for (int l = 0; l < kPair; ++l) {
        float sum = 0;
        for (int warp = 0; warp < kWarpsPerBlock; ++warp)
          sum += of_warps[threadIdx.y][warp][threadIdx.x * kPair + l];
        parts[((chunk + expert) * kSums + threadIdx.y) * width + column + l] = sum;
      }
    }
    __syncthreads();
    row = end;
  }
}

template <int kSums>
struct SumStacks {
  BFloat16* first[kSums];  // null: not wanted
  int64_t stride[kSums];
};

template <int kSums>
__global__ void add_parts_kernel(Places at, int64_t width, const float* parts,
                                 SumStacks<kSums> sums) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int expert = blockIdx.y, q = blockIdx.z;
  const int64_t begin = begin_of(at, expert), end = at.ends[expert];
  if (column >= width || begin == end || sums.first[q] == nullptr) return;
  float sum = 0;
  for (int64_t chunk = begin / kRowsPerChunk; chunk <= (end - 1) / kRowsPerChunk; ++chunk)
    sum += parts[((chunk + expert) * kSums + q) * width + column];
  BFloat16& to = sums.first[q][expert * sums.stride[q] + column];
  to = static_cast<float>(to) + sum;
}

template <int kSums, typename Visit>
void sum_columns(const RowPlaces& at, int64_t width, const Tensor* const (&stacks)[kSums],
                 const Visit& visit) {
  const Places places = raw(at);
  const int64_t chunks = (at.rows + kRowsPerChunk - 1) / kRowsPerChunk;
  const Tensor parts =
      at::empty({(chunks + places.experts) * kSums, width}, at.ends.options().dtype(at::kFloat));
  const auto stream = at::cuda::getCurrentCUDAStream();
  const dim3 grid(static_cast<unsigned>((width + kColumns - 1) / kColumns),
                  static_cast<unsigned>(chunks));
  sum_chunks_kernel<kSums>
      <<<grid, kBlock, 0, stream>>>(places, width, parts.data_ptr<float>(), visit);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  SumStacks<kSums> sums;
  for (int q = 0; q < kSums; ++q) {
    const Tensor& stack = *stacks[q];
    sums.first[q] = stack.defined() ? stack.data_ptr<BFloat16>() : nullptr;
    sums.stride[q] = stack.defined() ? stack.stride(0) : 0;
  }
  constexpr int kThreads = 128;
  const dim3 grid_of_sums(static_cast<unsigned>((width + kThreads - 1) / kThreads),
                          static_cast<unsigned>(places.experts), kSums);
  add_parts_kernel<kSums>
      <<<grid_of_sums, kThreads, 0, stream>>>(places, width, parts.const_data_ptr<float>(), sums);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

__device__ Two load_two(const BFloat16* from) { return *reinterpret_cast<const Two*>(from); }

struct MaskVisit {
  const BFloat16* active;
  BFloat16* dactive;
  int64_t width;
  __device__ void operator()(int64_t, int64_t place, int64_t column,
                             float (&sums)[1][kPair]) const {
    const int64_t i = place * width + column;
    const Two unit = load_two(active + i);
    Two gradient = load_two(dactive + i);
    for (int l = 0; l < kPair; ++l) {
      if (static_cast<float>(unit.values[l]) <= 0) gradient.values[l] = BFloat16(0.0f);
      sums[0][l] += static_cast<float>(gradient.values[l]);
    }
    *reinterpret_cast<Two*>(dactive + i) = gradient;
  }
};

struct NormVisit {
  NormBack in;
  __device__ void operator()(int64_t row, int64_t place, int64_t column,
                             float (&sums)[3][kPair]) const {
    const float mean = in.mean[row], inverse = in.inverse[row];
    const Two d = load_two(in.dnormed + place * in.width + column),
              x = load_two(in.x + row * in.width + column),
              dy = load_two(in.dy + row * in.width + column);
    for (int l = 0; l < kPair; ++l) {
      const float dnormed = static_cast<float>(d.values[l]);
      sums[0][l] += dnormed * (static_cast<float>(x.values[l]) - mean) * inverse;
      sums[1][l] += dnormed;
      sums[2][l] += static_cast<float>(dy.values[l]);
    }
  }
};

}  // namespace

void mask_inactive_by_expert(const RowPlaces& at, const Tensor& active, const Tensor& dactive,
                             const Tensor& sum) {
  const Tensor* const stacks[] = {&sum};
  sum_columns<1>(
      at, active.size(1), stacks,
      MaskVisit{active.const_data_ptr<BFloat16>(), dactive.data_ptr<BFloat16>(), active.size(1)});
}

void add_norm_columns(const RowPlaces& at, const NormGradient& in, const NormSums& sums) {
  const Tensor* const stacks[] = {&sums.weight, &sums.bias, &sums.dy};
  sum_columns<3>(at, in.x.size(1), stacks, NormVisit{raw(in)});
}

}  // namespace ballast
