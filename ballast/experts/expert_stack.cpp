// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_stack.h"

#include <utility>

#include "ballast/experts/expert_layout.h"
#include "ballast/experts/spread_rows.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::experts {

ExpertStack::ExpertStack(const ExpertShape& shape, const std::string& name,
                         parameters::ParameterTable& table) {
  const int64_t d = shape.width, f = shape.hidden;
  for (int64_t sublayer = 0; sublayer < shape.sublayers; ++sublayer) {
    const auto stack = [&](const char* part, std::vector<int64_t> extents,
                           parameters::Initialization initialization,
                           const std::vector<int64_t>& matrices = {}) -> const kernels::Parameter& {
      std::vector<parameters::SegmentSpec> specs;
      for (int64_t expert = shape.first; expert < shape.first + shape.count; ++expert) {
        specs.push_back({.name = name + ".expert." + std::to_string(expert) + ".sublayer." +
                                 std::to_string(sublayer) + "." + part,
                         .shape = extents,
                         .initialization = initialization,
                         .owner = parameters::Owner::kExpert,
                         .decay = extents.size() > 1,
                         .matrices = matrices});
      }
      return table.declare_stack(std::move(specs));
    };
    const auto zero = parameters::Initialization::zero();
    const auto down =
        shape.down_deviation > 0 ? parameters::Initialization::normal(shape.down_deviation) : zero;
    const auto stack_if =
        [&](bool wanted, const char* part, std::vector<int64_t> extents,
            parameters::Initialization initialization) -> const kernels::Parameter& {
      return wanted ? stack(part, std::move(extents), initialization) : kernels::no_parameter();
    };
    const ExpertForm& form = shape.form;
    const int64_t inner = f * kernels::columns_taken(form.activation);
    sublayers_.push_back(ExpertWeights{
        .norm = stack_if(form.norms, "norm.weight", {d}, parameters::Initialization::one()),
        .norm_bias = stack_if(form.norms && form.norm.takes_mean(), "norm.bias", {d}, zero),
        .up = stack("up.weight", {inner, d},
                    parameters::Initialization::normal(parameters::kWeightDeviation),
                    std::vector<int64_t>(static_cast<size_t>(inner / f), f)),
        .up_bias = stack_if(shape.biases, "up.bias", {inner}, zero),
        .down = stack("down.weight", {d, f}, down),
        .down_bias = stack_if(shape.biases, "down.bias", {d}, zero),
        .form = form});
  }
}

at::Tensor ExpertStack::forward(const RoutedRows& routed, MatrixGradients gradients) const {
  const auto& [rows, rows_of_expert, row_of_slot, slot_of_row] = routed;
  const bool in_slots = !row_of_slot.defined();
  at::Tensor h = in_slots ? rows : permute_rows(rows, row_of_slot, slot_of_row);
  const at::Tensor& up = sublayers_.front().up.value;  // [E, F, D]
  const ExpertRows of_expert =
      with_counts_if_worth(rows_of_expert, h.size(0), up.size(1) * up.size(2));
  for (const ExpertWeights& weights : sublayers_)
    h = expert_feed_forward(h, of_expert, weights, gradients);
  return in_slots ? h : permute_rows(h, slot_of_row, row_of_slot);
}

at::Tensor ExpertStack::gated(const RoutedRows& routed, const kernels::Parameter& expert_embeddings,
                              MatrixGradients gradients) const {
  return gated_experts(routed, sublayers_, expert_embeddings, gradients);
}

}  // namespace ballast::experts
