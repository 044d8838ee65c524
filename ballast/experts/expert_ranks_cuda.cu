// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

namespace ballast::experts {
namespace {

using at::Tensor;

// One warp counts a chunk of choices, in their order; before it come all earlier chunks.
constexpr int kLanes = 32;
constexpr int64_t kChunk = 256;

struct Choices {
  const int64_t* expert;  // [G, C]
  int64_t count;          // C
  int kinds;              // experts, and none
};

// Calls visit(index, expert, how many of the chunk came before with the same); `seen` is [kinds].
template <typename Visit>
__device__ void count_chunk(const Choices& in, int* seen, const Visit& visit) {
  const int64_t first = int64_t{blockIdx.x} * kChunk, last = min(first + kChunk, in.count);
  for (int64_t start = first; start < last; start += kLanes) {
    const int64_t i = start + threadIdx.x;
    const bool is_choice = i < last;
    const unsigned here = __ballot_sync(0xffffffffu, is_choice);
    if (is_choice) {
      const int expert = static_cast<int>(in.expert[int64_t{blockIdx.y} * in.count + i]);
      CUDA_KERNEL_ASSERT(expert >= 0 && expert < in.kinds);
      const unsigned same = __match_any_sync(here, expert);
      const int before = __popc(same & ((1u << threadIdx.x) - 1));
      visit(i, expert, seen[expert] + before);
      __syncwarp(here);
      if (before == 0) seen[expert] += __popc(same);
    }
    __syncwarp();
  }
}

__device__ void clear(int* seen, int kinds) {
  for (int e = threadIdx.x; e < kinds; e += kLanes) seen[e] = 0;
  __syncwarp();
}

// chunks: [G, chunks, kinds], how many of each chunk chose each.
__global__ void count_kernel(Choices in, int* chunks) {
  extern __shared__ int seen[];
  clear(seen, in.kinds);
  count_chunk(in, seen, [](int64_t, int, int) {});
  int* const to = chunks + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * in.kinds;
  for (int e = threadIdx.x; e < in.kinds; e += kLanes) to[e] = seen[e];
}

// Of each expert: how many before each chunk, and in all.
__global__ void add_up_kernel(int* chunks, int64_t num_chunks, int kinds, int64_t* counts) {
  const int expert = blockIdx.x * blockDim.x + threadIdx.x;
  if (expert >= kinds) return;
  int* at = chunks + int64_t{blockIdx.y} * num_chunks * kinds + expert;
  int sum = 0;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk, at += kinds) {
    const int here = *at;
    *at = sum;
    sum += here;
  }
  counts[int64_t{blockIdx.y} * kinds + expert] = sum;
}

__global__ void rank_kernel(Choices in, const int* chunks, int64_t* ranks) {
  extern __shared__ int seen[];
  clear(seen, in.kinds);
  const int* const before = chunks + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * in.kinds;
  int64_t* const of_group = ranks + int64_t{blockIdx.y} * in.count;
  count_chunk(in, seen,
              [&](int64_t i, int expert, int rank) { of_group[i] = before[expert] + rank; });
}

void count_on_gpu(const Tensor& expert, const Tensor& rank, const Tensor& counts) {
  const c10::cuda::CUDAGuard guard(expert.device());
  const int64_t groups = expert.size(0), kinds = counts.size(1);
  const Choices in{expert.const_data_ptr<int64_t>(), expert.size(1), static_cast<int>(kinds)};
  const int64_t num_chunks = (in.count + kChunk - 1) / kChunk;
  const auto shared = static_cast<size_t>(kinds) * sizeof(int);
  TORCH_CHECK(shared <= 48 * 1024 && groups < 65536, "expert_ranks: too many experts (", kinds - 1,
              ") or groups (", groups, ") for a GPU");
  const Tensor chunks = at::empty({groups, num_chunks, kinds}, expert.options().dtype(at::kInt));
  const dim3 grid(static_cast<unsigned>(num_chunks), static_cast<unsigned>(groups));
  const auto stream = at::cuda::getCurrentCUDAStream();
  count_kernel<<<grid, kLanes, shared, stream>>>(in, chunks.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  constexpr int kThreads = 128;
  const dim3 grid_of_sums(static_cast<unsigned>((kinds + kThreads - 1) / kThreads),
                          static_cast<unsigned>(groups));
  add_up_kernel<<<grid_of_sums, kThreads, 0, stream>>>(chunks.data_ptr<int>(), num_chunks, in.kinds,
                                                       counts.data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  rank_kernel<<<grid, kLanes, shared, stream>>>(in, chunks.const_data_ptr<int>(),
                                                rank.data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) { library.impl("count_choices", count_on_gpu); }

}  // namespace ballast::experts
