// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/balanced_slots.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "balanced_slots(Tensor expert, Tensor place, Tensor loads, Tensor? row_of_position, "
      "Tensor(a!) slot_of_row, Tensor(b!) row_of_slot, Tensor(c!) expert_of_row) -> ()");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;

// The slots of one group: where each round's tokens begin in each expert's block, less the first
// place that they have.
std::vector<int64_t> shifts_of(const Tensor& loads, int64_t group, std::vector<int64_t>& load) {
  const int64_t rounds = loads.size(0), groups = loads.size(1), experts = loads.size(2);
  const auto* const of_rounds = loads.const_data_ptr<int32_t>();
  std::vector<int64_t> shifts(static_cast<size_t>(rounds * experts));
  load.assign(static_cast<size_t>(experts), 0);
  for (int64_t k = 0; k < rounds; ++k) {
    int64_t place = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t here = of_rounds[(k * groups + group) * experts + e];
      shifts[static_cast<size_t>(k * experts + e)] = load[static_cast<size_t>(e)] - place;
      load[static_cast<size_t>(e)] += here;
      place += here;
    }
  }
  return shifts;
}

void find_on_cpu(const Tensor& expert, const Tensor& place, const Tensor& loads,
                 const OptionalTensor& row_of_position, const Tensor& slot_of_row,
                 const Tensor& row_of_slot, const Tensor& expert_of_row) {
  const int64_t rounds = expert.size(0), groups = expert.size(1), tokens = expert.size(2);
  const int64_t experts = loads.size(2), block = row_of_slot.size(0) / (groups * experts);
  const auto* const chosen = expert.const_data_ptr<int32_t>();
  const auto* const places = place.const_data_ptr<int32_t>();
  const auto* const rows = kernels::data_or_null<int64_t>(row_of_position);
  auto* const slots = slot_of_row.mutable_data_ptr<int64_t>();
  auto* const row_at = row_of_slot.mutable_data_ptr<int64_t>();
  auto* const experts_of_rows = expert_of_row.mutable_data_ptr<int64_t>();
  at::parallel_for(0, groups, 1, [&](int64_t group, int64_t end) {
    std::vector<int64_t> load;
    for (; group < end; ++group) {
      const std::vector<int64_t> shifts = shifts_of(loads, group, load);
      for (int64_t i = 0; i < rounds * tokens; ++i) {
        const int64_t k = i / tokens, t = i % tokens, at = (k * groups + group) * tokens + t;
        const int64_t e = chosen[at];
        TORCH_CHECK_INDEX(e >= 0 && e < experts, "balanced_slots: expert ", e, " of ", experts);
        const int64_t in_block = places[at] + shifts[static_cast<size_t>(k * experts + e)];
        TORCH_CHECK_INDEX(in_block >= 0 && in_block < block, "balanced_slots: place ", places[at],
                          " does not fit the loads");
        const int64_t position = group * tokens + t, slot = (e * groups + group) * block + in_block;
        const int64_t row = rows != nullptr ? rows[position] : position;
        slots[row * rounds + k] = slot;
        experts_of_rows[row * rounds + k] = e;
        row_at[slot] = row;
      }
      for (int64_t e = 0; e < experts; ++e)
        for (int64_t i = load[static_cast<size_t>(e)]; i < block; ++i)
          row_at[(e * groups + group) * block + i] = -1;
    }
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("balanced_slots", find_on_cpu); }

BalancedSlots balanced_slots(const AssignedRounds& rounds, const Tensor& row_of_position) {
  const at::NoGradGuard no_grad;
  const Tensor &expert = rounds.expert_of_token, &place = rounds.place_of_token,
               &loads = rounds.loads;
  TORCH_CHECK(expert.dim() == 3 && place.sizes() == expert.sizes() && loads.dim() == 3 &&
                  loads.size(0) == expert.size(0) && loads.size(1) == expert.size(1),
              "balanced_slots: want experts and places [K, P, T/G] and loads [K, P, E], got ",
              expert.sizes(), ", ", place.sizes(), " and ", loads.sizes());
  for (const Tensor& given : {expert, place, loads})
    TORCH_CHECK(given.scalar_type() == at::kInt, "balanced_slots: want int32, got ",
                given.scalar_type());
  const int64_t of_token = expert.size(0), groups = expert.size(1), experts = loads.size(2);
  const int64_t block = of_token * ((expert.size(2) + experts - 1) / experts);
  const auto longs = expert.options().dtype(at::kLong);
  BalancedSlots result{.slot_of_row = at::empty({groups * expert.size(2), of_token}, longs),
                       .row_of_slot = at::empty({experts * groups * block}, longs),
                       .expert_of_row = at::empty({groups * expert.size(2), of_token}, longs)};
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                            const Tensor&, const Tensor&, const Tensor&)>(
          "ballast::balanced_slots");
  op.call(expert.contiguous(), place.contiguous(), loads.contiguous(),
          kernels::contiguous_if_defined(row_of_position), result.slot_of_row, result.row_of_slot,
          result.expert_of_row);
  return result;
}

}  // namespace ballast::experts
