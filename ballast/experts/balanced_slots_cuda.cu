// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

constexpr int kLanes = 32, kThreads = 256;

struct Rounds {
  const int32_t *expert, *place;   // [K, P, N]
  const int32_t* loads;            // [K, P, E]
  const int64_t* row_of_position;  // [P N], or null
  int rounds, groups, experts;
  int64_t tokens, block;
};

struct Slots {
  int64_t *slot_of_row, *row_of_slot, *expert_of_row;
};

// -(tokens that experts before e have) of one round of this block's group, by one warp.
__device__ void scan_loads(const Rounds& in, int round, int* shifts) {
  const int lane = threadIdx.x % kLanes;
  const int32_t* const loads = in.loads + (int64_t{round} * in.groups + blockIdx.y) * in.experts;
  int before = 0;
  for (int start = 0; start < in.experts; start += kLanes) {
    const int e = start + lane;
    const int load = e < in.experts ? loads[e] : 0;
    int sum = load;
    for (int step = 1; step < kLanes; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    if (e < in.experts) shifts[round * in.experts + e] = -(before + sum - load);
    before += __shfl_sync(0xffffffffu, sum, kLanes - 1);
  }
}

// Adds what earlier rounds brought to the same block. Slots behind the last are nobody's.
__device__ void add_earlier_rounds(const Rounds& in, int* shifts, const Slots& out) {
  for (int e = threadIdx.x; e < in.experts; e += kThreads) {
    int64_t load = 0;
    for (int k = 0; k < in.rounds; ++k) {
      shifts[k * in.experts + e] += static_cast<int>(load);
      load += in.loads[(int64_t{k} * in.groups + blockIdx.y) * in.experts + e];
    }
    if (e % gridDim.x != blockIdx.x) continue;
    const int64_t first = (int64_t{e} * in.groups + blockIdx.y) * in.block;
    for (; load < in.block; ++load) out.row_of_slot[first + load] = -1;
  }
}

// A block has some tokens of group blockIdx.y; every block finds the group's shifts for itself.
__global__ void __launch_bounds__(kThreads) find_kernel(Rounds in, Slots out) {
  extern __shared__ int shifts[];  // [K, E]: place in the block of slots - place among all tokens
  for (int k = threadIdx.x / kLanes; k < in.rounds; k += kThreads / kLanes)
    scan_loads(in, k, shifts);
  __syncthreads();
  add_earlier_rounds(in, shifts, out);
  __syncthreads();
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= in.tokens) return;
  const int64_t position = blockIdx.y * in.tokens + t;
  const int64_t row = in.row_of_position != nullptr ? in.row_of_position[position] : position;
  for (int k = 0; k < in.rounds; ++k) {
    const int64_t at = int64_t{k} * in.groups * in.tokens + position;
    const int e = in.expert[at];
    CUDA_KERNEL_ASSERT(e >= 0 && e < in.experts);
    const int in_block = in.place[at] + shifts[k * in.experts + e];
    CUDA_KERNEL_ASSERT(in_block >= 0 && in_block < in.block);
    const int64_t slot = (int64_t{e} * in.groups + blockIdx.y) * in.block + in_block;
    out.slot_of_row[row * in.rounds + k] = slot;
    out.expert_of_row[row * in.rounds + k] = e;
    out.row_of_slot[slot] = row;
  }
}

}  // namespace

void balanced_slots_cuda(const Tensor& expert, const Tensor& place, const Tensor& loads,
                         const OptionalTensor& row_of_position, const Tensor& slot_of_row,
                         const Tensor& row_of_slot, const Tensor& expert_of_row) {
  const c10::cuda::CUDAGuard guard(expert.device());
  const int64_t groups = expert.size(1), tokens = expert.size(2), experts = loads.size(2);
  if (row_of_slot.size(0) == 0) return;
  const Rounds in{.expert = expert.const_data_ptr<int32_t>(),
                  .place = place.const_data_ptr<int32_t>(),
                  .loads = loads.const_data_ptr<int32_t>(),
                  .row_of_position = kernels::data_or_null<int64_t>(row_of_position),
                  .rounds = static_cast<int>(expert.size(0)),
                  .groups = static_cast<int>(groups),
                  .experts = static_cast<int>(experts),
                  .tokens = tokens,
                  .block = row_of_slot.size(0) / (groups * experts)};
  const auto shared = static_cast<size_t>(expert.size(0) * experts) * sizeof(int);
  TORCH_CHECK(shared <= 48 * 1024 && groups < 65536, "balanced_slots: too many experts (", experts,
              ") or groups (", groups, ") for a GPU");
  const dim3 grid(static_cast<unsigned>((tokens + kThreads - 1) / kThreads),
                  static_cast<unsigned>(groups));
  find_kernel<<<grid, kThreads, shared, at::cuda::getCurrentCUDAStream()>>>(
      in, {slot_of_row.mutable_data_ptr<int64_t>(), row_of_slot.mutable_data_ptr<int64_t>(),
           expert_of_row.mutable_data_ptr<int64_t>()});
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::experts
