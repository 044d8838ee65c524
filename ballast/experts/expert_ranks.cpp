// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "ballast/kernels/find_op.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("count_choices(Tensor expert, Tensor(a!) rank, Tensor(b!) counts) -> ()");
  library.def(
      "block_slots(Tensor expert, int experts, int groups, Tensor(a!) slot_of_row, "
      "Tensor(b!) row_of_slot) -> ()");
}

namespace {

using at::Tensor;

void count_on_cpu(const Tensor& expert, const Tensor& rank, const Tensor& counts) {
  const int64_t choices = expert.size(1), kinds = counts.size(1);
  const auto* chosen = expert.const_data_ptr<int64_t>();
  auto* ranks = rank.mutable_data_ptr<int64_t>();
  auto* loads = counts.mutable_data_ptr<int64_t>();
  at::parallel_for(0, expert.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      int64_t* const load = loads + group * kinds;
      for (int64_t i = group * choices; i < (group + 1) * choices; ++i) {
        TORCH_CHECK_INDEX(chosen[i] >= 0 && chosen[i] < kinds, "expert_ranks: expert ", chosen[i],
                          " of ", kinds - 1);
        ranks[i] = load[chosen[i]]++;
      }
    }
  });
}

void find_on_cpu(const Tensor& expert, int64_t experts, int64_t groups, const Tensor& slot_of_row,
                 const Tensor& row_of_slot) {
  const int64_t tokens = expert.size(0) / groups, of_token = expert.size(1);
  const int64_t block = row_of_slot.size(0) / (experts * groups);
  const auto* const chosen = expert.const_data_ptr<int64_t>();
  auto* const slots = slot_of_row.mutable_data_ptr<int64_t>();
  auto* const rows = row_of_slot.mutable_data_ptr<int64_t>();
  std::fill_n(rows, row_of_slot.size(0), -1);
  at::parallel_for(0, groups, 1, [&](int64_t group, int64_t end) {
    for (; group < end; ++group) {
      std::vector<int64_t> load(static_cast<size_t>(experts));
      for (int64_t i = 0; i < tokens * of_token; ++i) {  // all first choices, then the second ones
        const int64_t row = group * tokens + i % tokens, choice = row * of_token + i / tokens;
        const int64_t e = chosen[choice];
        TORCH_CHECK_INDEX(e >= 0 && e <= experts, "block_slots: expert ", e, " of ", experts);
        slots[choice] = -1;
        if (e == experts || load[static_cast<size_t>(e)] == block) continue;
        slots[choice] = (e * groups + group) * block + load[static_cast<size_t>(e)]++;
        rows[slots[choice]] = row;
      }
    }
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("count_choices", count_on_cpu);
  library.impl("block_slots", find_on_cpu);
}

ExpertRanks expert_ranks(const Tensor& expert, int64_t experts) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(expert.dim() == 2 && expert.scalar_type() == at::kLong,
              "expert_ranks: want int64 experts [G, C], got ", expert.sizes());
  const Tensor chosen = expert.contiguous(), rank = at::empty_like(chosen);
  const Tensor counts = at::zeros({expert.size(0), experts + 1}, expert.options());
  if (chosen.numel() > 0) {
    static const auto op = kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&)>(
        "ballast::count_choices");
    op.call(chosen, rank, counts);
  }
  return {rank, counts.narrow(1, 0, experts)};
}

BlockSlots block_slots(const Tensor& expert, const BlockShape& shape) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(expert.dim() == 2 && expert.scalar_type() == at::kLong && shape.groups > 0 &&
                  expert.size(0) % shape.groups == 0,
              "block_slots: want int64 experts [T, K] of ", shape.groups, " groups, got ",
              expert.sizes());
  const Tensor chosen = expert.contiguous();
  BlockSlots result{
      .slot_of_row = at::empty_like(chosen),
      .row_of_slot = at::empty({shape.experts * shape.groups * shape.block}, chosen.options())};
  static const auto op =
      kernels::find_op<void(const Tensor&, int64_t, int64_t, const Tensor&, const Tensor&)>(
          "ballast::block_slots");
  op.call(chosen, shape.experts, shape.groups, result.slot_of_row, result.row_of_slot);
  return result;
}

}  // namespace ballast::experts
