// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/experts/operations_cuda.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// One warp counts a chunk of choices, in their order; before it come all earlier chunks.
constexpr int kLanes = 32;
constexpr int64_t kChunk = 256;

// Of each group first all first choices, then the second ones.
struct Choices {
  const int64_t* expert;     // [G, T/G, K]
  int64_t tokens, of_token;  // T/G, K
  int kinds;                 // experts, and none

  __device__ int64_t count() const { return tokens * of_token; }
  // Where choice i of this block's group stands.
  __device__ int64_t at(int64_t i) const {
    if (of_token == 1) return blockIdx.y * tokens + i;
    return (blockIdx.y * tokens + i % tokens) * of_token + i / tokens;
  }
};

// Calls visit(index, expert, how many of the chunk came before with the same); `seen` is [kinds].
template <typename Visit>
__device__ void count_chunk(const Choices& in, int* seen, const Visit& visit) {
  const int64_t first = int64_t{blockIdx.x} * kChunk, last = min(first + kChunk, in.count());
  for (int64_t start = first; start < last; start += kLanes) {
    const int64_t i = start + threadIdx.x;
    const bool is_choice = i < last;
    const unsigned here = __ballot_sync(0xffffffffu, is_choice);
    if (is_choice) {
      const int expert = static_cast<int>(in.expert[in.at(i)]);
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
  count_chunk(in, seen,
              [&](int64_t i, int expert, int rank) { ranks[in.at(i)] = before[expert] + rank; });
}

struct Blocks {
  int64_t *slot_of_row, *row_of_slot;
  int64_t block;  // slots of each
};

// Slots of this block's group that no choice has, each block a part of them.
__device__ void clear_slots(const Choices& in, const int64_t* counts, const Blocks& out) {
  const int64_t* const loads = counts + int64_t{blockIdx.y} * in.kinds;
  const int64_t slots = (in.kinds - 1) * out.block;
  for (int64_t i = int64_t{blockIdx.x} * kLanes + threadIdx.x; i < slots;
       i += int64_t{gridDim.x} * kLanes) {
    const int64_t expert = i / out.block, place = i % out.block;
    if (place >= loads[expert])
      out.row_of_slot[(expert * gridDim.y + blockIdx.y) * out.block + place] = -1;
  }
}

__global__ void place_kernel(Choices in, const int* chunks, const int64_t* counts, Blocks out) {
  extern __shared__ int seen[];
  clear(seen, in.kinds);
  const int* const before = chunks + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * in.kinds;
  count_chunk(in, seen, [&](int64_t i, int expert, int rank) {
    const int64_t place = before[expert] + rank;
    const bool has_slot = expert < in.kinds - 1 && place < out.block;
    const int64_t slot = (int64_t{expert} * gridDim.y + blockIdx.y) * out.block + place;
    out.slot_of_row[in.at(i)] = has_slot ? slot : -1;
    if (has_slot) out.row_of_slot[slot] = blockIdx.y * in.tokens + i % in.tokens;
  });
  clear_slots(in, counts, out);
}

// Choices counted chunk by chunk.
struct Counted {
  Tensor chunks;  // [G, chunks, kinds] int32: how many came before each chunk
  dim3 grid;      // chunks, groups
  size_t shared;  // bytes
};

Counted count(const Choices& in, int64_t groups, const Tensor& counts) {
  const auto shared = static_cast<size_t>(in.kinds) * sizeof(int);
  TORCH_CHECK(shared <= 48 * 1024 && groups < 65536, "expert_ranks: too many experts (",
              in.kinds - 1, ") or groups (", groups, ") for a GPU");
  const int64_t num_chunks = (in.tokens * in.of_token + kChunk - 1) / kChunk;
  const Tensor chunks = counts.new_empty({groups, num_chunks, in.kinds}, at::kInt);
  const dim3 grid(static_cast<unsigned>(num_chunks), static_cast<unsigned>(groups));
  const auto stream = at::cuda::getCurrentCUDAStream();
  count_kernel<<<grid, kLanes, shared, stream>>>(in, chunks.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  constexpr int kThreads = 128;
  const dim3 grid_of_sums(static_cast<unsigned>((in.kinds + kThreads - 1) / kThreads),
                          static_cast<unsigned>(groups));
  add_up_kernel<<<grid_of_sums, kThreads, 0, stream>>>(chunks.data_ptr<int>(), num_chunks, in.kinds,
                                                       counts.data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {chunks, grid, shared};
}

}  // namespace

void count_choices_cuda(const Tensor& expert, const Tensor& rank, const Tensor& counts) {
  const c10::cuda::CUDAGuard guard(expert.device());
  const Choices in{expert.const_data_ptr<int64_t>(), expert.size(1), 1,
                   static_cast<int>(counts.size(1))};
  const Counted counted = count(in, expert.size(0), counts);
  rank_kernel<<<counted.grid, kLanes, counted.shared, at::cuda::getCurrentCUDAStream()>>>(
      in, counted.chunks.const_data_ptr<int>(), rank.data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void block_slots_cuda(const Tensor& expert, int64_t experts, int64_t groups,
                      const Tensor& slot_of_row, const Tensor& row_of_slot) {
  const c10::cuda::CUDAGuard guard(expert.device());
  if (expert.numel() == 0) {
    row_of_slot.fill_(-1);
    return;
  }
  const Choices in{expert.const_data_ptr<int64_t>(), expert.size(0) / groups, expert.size(1),
                   static_cast<int>(experts + 1)};
  const Tensor counts = expert.new_empty({groups, experts + 1});
  const Counted counted = count(in, groups, counts);
  const Blocks out{slot_of_row.data_ptr<int64_t>(), row_of_slot.data_ptr<int64_t>(),
                   row_of_slot.size(0) / (experts * groups)};
  place_kernel<<<counted.grid, kLanes, counted.shared, at::cuda::getCurrentCUDAStream()>>>(
      in, counted.chunks.const_data_ptr<int>(), counts.const_data_ptr<int64_t>(), out);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::experts
