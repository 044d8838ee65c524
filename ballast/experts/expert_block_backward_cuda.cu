// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "ballast/experts/expert_block_passes.h"
#include "ballast/experts/expert_slots_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_norm_cuda.cuh"

namespace ballast::experts {
namespace {

using at::BFloat16;
using at::Tensor;
using kernels::OptionalTensor;
using MaybeList = c10::List<OptionalTensor>;

// A block has some slots of one expert, and each thread eight columns of all of them: rows' own
// sums are taken over the block, the columns' in registers, and those of all blocks added up after.
constexpr int kSlotsAtOnce = 2;  // with four, registers spill
constexpr int kMostThreads = kWidestSlot / kSize;
constexpr int kMostWarps = kMostThreads / kernels::kLanes;
constexpr int kRowSums = 2;  // of LayerNorm's gradient: along ones, along the row
constexpr int kMostSums = 4;

struct NormBackward {
  const BFloat16 *dnormed, *x;
  const BFloat16* change;   // null: none
  const BFloat16* dchange;  // null: gate times dy
  const BFloat16* dy;
  const float *mean, *inverse;
  const float *gates, *dscores;  // null: there is no gate
  Stack weight, embeddings;
  int64_t width;
};

// The numbers of a slot that all its columns share.
struct SlotNumbers {
  int64_t row;
  kernels::RowStats<float> stats;
  float gate, dscore;
};

__device__ SlotNumbers numbers_of(const Slots& slots, const NormBackward& in, int64_t slot) {
  return {slots.row(slot),
          {in.mean[slot], in.inverse[slot]},
          in.gates == nullptr ? 1.0f : in.gates[slot],
          in.gates == nullptr ? 0.0f : in.dscores[slot]};
}

// The sum over the block of each value; all threads get it. `kept` is another in the next call.
template <int kValues>
__device__ void sum_over_block(float (&values)[kValues], float (&kept)[kMostWarps][kValues]) {
  const int lane = threadIdx.x % kernels::kLanes, warp = threadIdx.x / kernels::kLanes;
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    values[v] = kernels::sum_over_warp(values[v]);
    if (lane == 0) kept[warp][v] = values[v];
  }
  __syncthreads();
  const int warps = blockDim.x / kernels::kLanes;
#pragma unroll
  for (int v = 0; v < kValues; ++v) values[v] = 0;
  for (int w = 0; w < warps; ++w) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) values[v] += kept[w][v];
  }
}

// kAtRows: the first sublayer, whose gradient is that of x. Else a later one, by the change before.
template <bool kAtRows>
struct OfSlot {
  static constexpr int kSums = kAtRows ? 4 : 3;
  Unit d = {}, x = {}, above = {}, change = {};  // above: dy or dchange

  __device__ __forceinline__ void load_from(const NormBackward& in, int64_t slot, int64_t row,
                                            int64_t column) {
    const int64_t at_slot = slot * in.width + column, at_row = row * in.width + column;
    d = load(in.dnormed + at_slot);
    x = load(in.x + at_row);
    above = kAtRows ? load(in.dy + at_row) : load(in.dchange + at_slot);
    if (!kAtRows) change = load(in.change + at_slot);
  }
  __device__ __forceinline__ kernels::NormedColumn<float> column(const SlotNumbers& of_slot,
                                                                 const Unit& weight, int l) const {
    const float value = kAtRows ? number(x, l) : number(x, l) + number(change, l);
    return {number(d, l), number(d, l) * number(weight, l), of_slot.stats.centred(value)};
  }
};

struct OfExpert {
  Unit weight = {}, embedding = {};
};

// The gradient by the change after the first sublayer, where it is more than gate times dy.
struct Later {
  bool is_there = false;
  Unit dchange = {};
};

// The gradient of one slot's eight columns; adds to their sums. `along`: LayerNorm's two means.
template <bool kAtRows>
__device__ __forceinline__ Unit finish(const OfSlot<kAtRows>& units, const SlotNumbers& of_slot,
                                       const OfExpert& of_expert, const float* along,
                                       const Later& later,
                                       float (&sums)[OfSlot<kAtRows>::kSums][kSize]) {
  float result[kSize];
#pragma unroll
  for (int l = 0; l < kSize; ++l) {
    const kernels::NormedColumn<float> column = units.column(of_slot, of_expert.weight, l);
    const float above = number(units.above, l);
    float dmade = above, passed = above;
    if (kAtRows) {
      dmade = later.is_there ? number(later.dchange, l) : of_slot.gate * above;
      if (later.is_there) passed = (1 - of_slot.gate) * above + dmade;
      passed += of_slot.dscore * number(of_expert.embedding, l);
      sums[OfSlot<kAtRows>::kSums - 1][l] += of_slot.dscore * number(units.x, l);
    }
    result[l] = passed + column.gradient(of_slot.stats, along);
    column.add_columns(sums[0][l], sums[1][l]);
    sums[2][l] += dmade;
  }
  return rounded(result);
}

template <int kSums>
__device__ void store_sums(const float (&sums)[kSums][kSize], float* to, int64_t width) {
  constexpr int kHalf = kSize / 2;
#pragma unroll
  for (int q = 0; q < kSums; ++q) {
#pragma unroll
    for (int half = 0; half < kSize; half += kHalf) {
      kernels::Pack<float, kHalf> values;
      for (int l = 0; l < kHalf; ++l) values.values[l] = sums[q][half + l];
      *reinterpret_cast<kernels::Pack<float, kHalf>*>(to + q * width + half) = values;
    }
  }
}

template <bool kAtRows>
__global__ void __launch_bounds__(kMostThreads)
    norm_backward_kernel(Slots slots, NormBackward in, BFloat16* to, float* parts) {
  __shared__ SlotNumbers numbers[kSlotsOfPart];
  __shared__ float kept[2][kMostWarps][kRowSums * kSlotsAtOnce];
  const auto [expert, first, count] = part_at(slots, blockIdx.x);
  if (count == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t column = int64_t{thread} * kSize, width = in.width;
  const bool inside = column < width;
  const float share = 1.0f / static_cast<float>(width);
  if (thread < kSlotsOfPart)
    numbers[thread] =
        thread < count ? numbers_of(slots, in, first + thread) : SlotNumbers{.row = -1};
  OfExpert of_expert;
  if (inside) of_expert.weight = load(in.weight.of(expert) + column);
  if (kAtRows && inside && in.gates != nullptr)
    of_expert.embedding = load(in.embeddings.of(expert) + column);
  float sums[OfSlot<kAtRows>::kSums][kSize] = {};
  __syncthreads();

  for (int begin = 0; begin < count; begin += kSlotsAtOnce) {
    OfSlot<kAtRows> units[kSlotsAtOnce];
    float along[kRowSums * kSlotsAtOnce] = {};
#pragma unroll
    for (int r = 0; r < kSlotsAtOnce; ++r) {  // which divides kSlotsOfPart: numbers are there
      const int64_t row = numbers[begin + r].row;
      if (inside && row >= 0) units[r].load_from(in, first + begin + r, row, column);
    }
#pragma unroll
    for (int r = 0; r < kSlotsAtOnce; ++r) {
#pragma unroll
      for (int l = 0; l < kSize; ++l)
        units[r].column(numbers[begin + r], of_expert.weight, l).add_along(along + kRowSums * r);
    }
    sum_over_block(along, kept[begin / kSlotsAtOnce % 2]);
#pragma unroll
    for (float& mean : along) mean *= share;
#pragma unroll
    for (int r = 0; r < kSlotsAtOnce; ++r) {
      const int64_t slot = first + begin + r, row = numbers[begin + r].row;
      if (!inside || begin + r >= count) continue;
      if (row < 0) {  // matrix products read zeros there
        if (!kAtRows) store(to + slot * width + column, Unit{});
        continue;
      }
      Later later{kAtRows && in.dchange != nullptr};
      if (later.is_there) later.dchange = load(in.dchange + slot * width + column);
      store(to + (kAtRows ? row : slot) * width + column,
            finish<kAtRows>(units[r], numbers[begin + r], of_expert, along + kRowSums * r, later,
                            sums));
    }
  }
  if (inside)
    store_sums(sums, parts + int64_t{blockIdx.x} * OfSlot<kAtRows>::kSums * width + column, width);
}

struct SumStacks {
  BFloat16* first[kMostSums];  // null: not wanted
  int64_t stride[kMostSums];
};

// One warp has 32 columns; the warps of a block share an expert's parts.
__global__ void add_parts_kernel(Slots slots, const float* parts, int64_t width, SumStacks sums) {
  __shared__ float of_warps[kernels::kWarpsPerBlock][kernels::kLanes];
  const int64_t column = int64_t{blockIdx.x} * kernels::kLanes + threadIdx.x;
  const int expert = blockIdx.y;
  const int64_t q = blockIdx.z, quantities = gridDim.z;
  const int64_t begin = slots.begin(expert), end = slots.end(expert);
  if (sums.first[q] == nullptr || begin == end) return;
  const int64_t last = (end - 1) / kSlotsOfPart + expert;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int64_t part = first_part(slots, expert) + threadIdx.y; part <= last;
         part += kernels::kWarpsPerBlock)
      sum += parts[(part * quantities + q) * width + column];
  }
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
  for (int warp = 1; warp < kernels::kWarpsPerBlock; ++warp) sum += of_warps[warp][threadIdx.x];
  BFloat16& to = sums.first[q][expert * sums.stride[q] + column];
  to = static_cast<float>(to) + sum;
}

using In = NormBackwardInputs;

template <typename Scalar>
const Scalar* pointer(const MaybeList& inputs, In::Input which) {
  const OptionalTensor input = inputs[which];
  return kernels::data_or_null<Scalar>(input);
}

NormBackward inputs_of(const Tensor& dnormed, const MaybeList& inputs) {
  const OptionalTensor weight = inputs[In::kWeight], embeddings = inputs[In::kEmbeddings];
  return {.dnormed = dnormed.const_data_ptr<BFloat16>(),
          .x = pointer<BFloat16>(inputs, In::kX),
          .change = pointer<BFloat16>(inputs, In::kChange),
          .dchange = pointer<BFloat16>(inputs, In::kDchange),
          .dy = pointer<BFloat16>(inputs, In::kDy),
          .mean = pointer<float>(inputs, In::kMean),
          .inverse = pointer<float>(inputs, In::kInverse),
          .gates = pointer<float>(inputs, In::kGates),
          .dscores = pointer<float>(inputs, In::kDscores),
          .weight = raw(weight),
          .embeddings = raw(embeddings),
          .width = dnormed.size(1)};
}

SumStacks stacks_of(const MaybeList& wanted) {
  SumStacks sums = {};
  for (int q = 0; q < kMostSums; ++q) {
    const OptionalTensor stack = wanted[q];
    if (!stack) continue;
    sums.first[q] = stack->data_ptr<BFloat16>();
    sums.stride[q] = stack->stride(0);
  }
  return sums;
}

}  // namespace

Tensor expert_norm_backward_cuda(const Tensor& dnormed, const MaybeList& inputs,
                                 const MaybeList& wanted) {
  const c10::cuda::CUDAGuard guard(dnormed.device());
  const Tensor x = OptionalTensor(inputs[In::kX]).value(),
               weight = OptionalTensor(inputs[In::kWeight]).value();
  const int64_t width = x.size(1), experts = weight.size(0);
  const Slots slots = slots_of(inputs[In::kRowOfSlot], inputs[In::kEnds], x.size(0), experts);
  const NormBackward in = inputs_of(dnormed, inputs);
  const bool at_rows = in.dy != nullptr;
  const int quantities = at_rows ? 4 : 3;
  const auto blocks = static_cast<unsigned>(parts_of(slots));
  const auto threads = static_cast<unsigned>((width / kSize + kernels::kLanes - 1) /
                                             kernels::kLanes * kernels::kLanes);
  Tensor result = x.new_empty((at_rows ? x : dnormed).sizes());
  const Tensor parts = x.new_empty({int64_t{blocks} * quantities, width}, at::kFloat);
  const auto stream = at::cuda::getCurrentCUDAStream();
  const auto kernel = at_rows ? norm_backward_kernel<true> : norm_backward_kernel<false>;
  kernel<<<blocks, threads, 0, stream>>>(slots, in, result.data_ptr<BFloat16>(),
                                         parts.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  const dim3 grid(static_cast<unsigned>((width + kernels::kLanes - 1) / kernels::kLanes),
                  static_cast<unsigned>(experts), static_cast<unsigned>(quantities));
  add_parts_kernel<<<grid, kBlock, 0, stream>>>(slots, parts.const_data_ptr<float>(), width,
                                                stacks_of(wanted));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

}  // namespace ballast::experts
