// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <tuple>

#include "ballast/experts/expert_slots_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_norm_cuda.cuh"

namespace ballast::experts {
namespace {

using at::BFloat16;
using at::Tensor;
using kernels::OptionalTensor;

// One warp has one slot, whose row stays in registers: kPacks units in each lane.
template <int kPacks, typename Visit>
__device__ void for_each_unit(int64_t width, const Visit& visit) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = (p * kernels::kLanes + static_cast<int64_t>(threadIdx.x)) * kSize;
    if (i < width) visit(p, i);
  }
}

template <typename Work>
void with_packs(int64_t width, const Work& work) {
  const int64_t packs = (width + kStep - 1) / kStep;
  packs <= 4   ? work(std::integral_constant<int, 4>())
  : packs <= 8 ? work(std::integral_constant<int, 8>())
               : work(std::integral_constant<int, 16>());
}

struct Changes {
  const BFloat16* before;
  BFloat16* change;
};
Changes changes_of(const OptionalTensor& before, const OptionalTensor& change) {
  return {kernels::data_or_null<BFloat16>(before), change ? change->data_ptr<BFloat16>() : nullptr};
}

// Slots of experts; their norm is that of x + change, which is not rounded. Where there is a change
// before, the two become one, which is.
struct SlotsPass {
  using Scalar = BFloat16;
  struct Row {
    int64_t slot = 0, row = 0;
    bool is_filled = false;
  };
  struct Held {
    static constexpr int kSize = experts::kSize;
    Unit x = {}, change = {};
    __device__ float number(int l) const {
      return experts::number(x, l) + experts::number(change, l);
    }
  };
  static constexpr bool takes_mean = true;

  Slots slots;
  int64_t width;
  const BFloat16* x;
  Changes so_far;
  Stack weights, biases;
  float epsilon;

  __device__ Row row(int64_t slot) const {
    const int64_t row = slots.row(slot);
    return {slot, row, row >= 0};
  }
  __device__ Held load(const Row& row, int i) const {
    const int64_t at = row.slot * width + i;
    const Unit change = so_far.change ? experts::load(so_far.change + at) : Unit{},
               before = so_far.before ? experts::load(so_far.before + at) : Unit{};
    return {experts::load(x + row.row * width + i),
            so_far.before ? kernels::sum_of<BFloat16>(change, before) : change};
  }
  __device__ void settle(const Row& row, int i, int filled, const Held& held) const {
    if (so_far.before && i < filled) store(so_far.change + row.slot * width + i, held.change);
  }
  __device__ kernels::NormVectors<BFloat16> vectors(const Row& row) const {
    const int expert = slots.expert(row.slot);
    return {weights.of(expert), biases.of(expert)};
  }
};

// before + change (+ bias) of a slot, unrounded.
template <int kPacks>
__device__ void load_changes(const Changes& so_far, const BFloat16* bias, int64_t first,
                             int64_t width, float (&values)[kPacks][kSize]) {
  for_each_unit<kPacks>(width, [&](int p, int64_t i) {
    const Unit change = load(so_far.change + first + i);
    for (int l = 0; l < kSize; ++l) values[p][l] = number(change, l);
  });
  if (bias != nullptr) {
    for_each_unit<kPacks>(width, [&](int p, int64_t i) {
      const Unit more = load(bias + i);
      for (int l = 0; l < kSize; ++l) values[p][l] += number(more, l);
    });
  }
  if (so_far.before == nullptr) return;
  for_each_unit<kPacks>(width, [&](int p, int64_t i) {
    const Unit before = load(so_far.before + first + i);
    for (int l = 0; l < kSize; ++l) values[p][l] += number(before, l);
  });
}

template <int kPacks>
__global__ void gate_kernel(Slots slots, const BFloat16* x, Changes so_far, Stack embeddings,
                            Stack bias, int64_t width, BFloat16* y, float* gates) {
  const int64_t slot = kernels::row_of_warp();
  if (slot >= slots.count) return;
  const int64_t row = slots.row(slot);
  if (row < 0) {
    if (gates != nullptr && threadIdx.x == 0) gates[slot] = 0;
    return;
  }
  Unit of_x[kPacks];
  for_each_unit<kPacks>(width, [&](int p, int64_t i) { of_x[p] = load(x + row * width + i); });
  const bool knows_expert = gates != nullptr || bias.first != nullptr;
  const int expert = knows_expert ? slots.expert(slot) : 0;
  float changes[kPacks][kSize];
  load_changes<kPacks>(so_far, bias.first == nullptr ? nullptr : bias.of(expert), slot * width,
                       width, changes);
  float gate = 1;
  if (gates != nullptr) {
    const BFloat16* const w = embeddings.of(expert);
    float score = 0;
    for_each_unit<kPacks>(width, [&](int p, int64_t i) {
      const Unit of_w = load(w + i);
      for (int l = 0; l < kSize; ++l) score += number(of_x[p], l) * number(of_w, l);
    });
    gate = 1 / (1 + expf(-kernels::sum_over_warp(score)));
    if (threadIdx.x == 0) gates[slot] = gate;
  }
  for_each_unit<kPacks>(width, [&](int p, int64_t i) {
    float result[kSize];
    for (int l = 0; l < kSize; ++l) result[l] = number(of_x[p], l) + gate * changes[p][l];
    store(y + row * width + i, rounded(result));
  });
}

template <int kPacks>
__global__ void gate_backward_kernel(Slots slots, const BFloat16* dy, Changes so_far, Stack bias,
                                     const float* gates, int64_t width, BFloat16* dchange,
                                     float* dscores) {
  const int64_t slot = kernels::row_of_warp();
  if (slot >= slots.count) return;
  const int64_t row = slots.row(slot);
  dchange += slot * width;
  if (row < 0) {
    for_each_unit<kPacks>(width, [&](int, int64_t i) { store(dchange + i, Unit{}); });
    if (gates != nullptr && threadIdx.x == 0) dscores[slot] = 0;
    return;
  }
  Unit of_dy[kPacks];
  for_each_unit<kPacks>(width, [&](int p, int64_t i) { of_dy[p] = load(dy + row * width + i); });
  if (gates == nullptr) {
    for_each_unit<kPacks>(width, [&](int p, int64_t i) { store(dchange + i, of_dy[p]); });
    return;
  }
  float changes[kPacks][kSize];
  load_changes<kPacks>(so_far, bias.first == nullptr ? nullptr : bias.of(slots.expert(slot)),
                       slot * width, width, changes);
  const float gate = gates[slot];
  float along = 0;
  for_each_unit<kPacks>(width, [&](int p, int64_t i) {
    float result[kSize];
    for (int l = 0; l < kSize; ++l) {
      along += number(of_dy[p], l) * changes[p][l];
      result[l] = gate * number(of_dy[p], l);
    }
    store(dchange + i, rounded(result));
  });
  along = kernels::sum_over_warp(along);
  if (threadIdx.x == 0) dscores[slot] = gate * (1 - gate) * along;
}

// How many experts the stacks of vectors that are there have; where none is, nobody asks.
int64_t experts_of(const OptionalTensor& embeddings, const OptionalTensor& bias) {
  return embeddings ? embeddings->size(0) : bias ? bias->size(0) : 1;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> expert_normalize_cuda(const Tensor& x,
                                                         const OptionalTensor& row_of_slot,
                                                         const OptionalTensor& ends,
                                                         const OptionalTensor& before,
                                                         const OptionalTensor& change,
                                                         const Tensor& weight, const Tensor& bias) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Slots slots = slots_of(row_of_slot, ends, x.size(0), weight.size(0));
  Tensor normed = x.new_empty({slots.count, x.size(1)}),
         mean = x.new_empty({slots.count}, at::kFloat),
         inverse = x.new_empty({slots.count}, at::kFloat);
  const kernels::Division division = kernels::division_of(x.size(1), sizeof(BFloat16));
  const SlotsPass pass{.slots = slots,
                       .width = x.size(1),
                       .x = x.const_data_ptr<BFloat16>(),
                       .so_far = changes_of(before, change),
                       .weights = raw(weight),
                       .biases = raw(bias),
                       .epsilon = static_cast<float>(kernels::NormForm().epsilon)};
  kernels::norm_rows(
      {slots.count, static_cast<int>(x.size(1)), division.warps}, division.packs, pass,
      {normed.data_ptr<BFloat16>(), mean.data_ptr<float>(), inverse.data_ptr<float>()},
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {normed, mean, inverse};
}

std::tuple<Tensor, Tensor> expert_gate_cuda(const Tensor& x, const OptionalTensor& row_of_slot,
                                            const OptionalTensor& ends,
                                            const OptionalTensor& before, const Tensor& change,
                                            const OptionalTensor& bias,
                                            const OptionalTensor& embeddings) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Slots slots = slots_of(row_of_slot, ends, x.size(0), experts_of(embeddings, bias));
  Tensor y = x.new_empty(x.sizes()),
         gates = x.new_empty({embeddings ? slots.count : 0}, at::kFloat);
  with_packs(x.size(1), [&](auto packs) {
    gate_kernel<packs()>
        <<<kernels::blocks_for(slots.count), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
            slots, x.const_data_ptr<BFloat16>(), changes_of(before, change), raw(embeddings),
            raw(bias), x.size(1), y.data_ptr<BFloat16>(),
            embeddings ? gates.data_ptr<float>() : nullptr);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, gates};
}

std::tuple<Tensor, Tensor> expert_gate_backward_cuda(
    const Tensor& dy, const OptionalTensor& row_of_slot, const OptionalTensor& ends,
    const OptionalTensor& before, const Tensor& change, const OptionalTensor& bias,
    const OptionalTensor& gates) {
  const c10::cuda::CUDAGuard guard(dy.device());
  Tensor dchange = change.new_empty(change.sizes()),
         dscores = dy.new_empty({gates ? change.size(0) : 0}, at::kFloat);
  with_packs(dy.size(1), [&](auto packs) {
    gate_backward_kernel<packs()>
        <<<kernels::blocks_for(change.size(0)), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
            slots_of(row_of_slot, ends, dy.size(0), experts_of(std::nullopt, bias)),
            dy.const_data_ptr<BFloat16>(), changes_of(before, change), raw(bias),
            kernels::data_or_null<float>(gates), dy.size(1), dchange.data_ptr<BFloat16>(),
            dscores.data_ptr<float>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {dchange, dscores};
}

}  // namespace ballast::experts
