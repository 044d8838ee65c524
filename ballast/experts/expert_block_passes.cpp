// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_block_passes.h"

#include <torch/library.h>

#include <tuple>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

using at::Tensor;
using kernels::if_defined;
using kernels::OptionalTensor;
using MaybeList = c10::List<OptionalTensor>;

// `inputs`: in the order of NormBackwardInputs; sums: in that of ColumnSums.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "expert_normalize(Tensor x, Tensor? row_of_slot, Tensor? ends, Tensor? before, "
      "Tensor? change, Tensor weight, Tensor bias) -> (Tensor, Tensor, Tensor)");
  library.def(
      "expert_gate(Tensor x, Tensor? row_of_slot, Tensor? ends, Tensor? before, Tensor change, "
      "Tensor? bias, Tensor? embeddings) -> (Tensor, Tensor)");
  library.def(
      "expert_gate_backward(Tensor dy, Tensor? row_of_slot, Tensor? ends, Tensor? before, "
      "Tensor change, Tensor? bias, Tensor? gates) -> (Tensor, Tensor)");
  library.def("expert_norm_backward(Tensor dnormed, Tensor?[] inputs, Tensor?[] sums) -> Tensor");
  library.def("expert_ends(Tensor rows, int[] counts) -> Tensor");
  library.def("expert_padded_slots(Tensor ends, int block) -> Tensor");
  library.def("expert_bias_relu_(Tensor(a!) y, Tensor ends, Tensor bias) -> ()");
  library.def(
      "expert_take_back_relu_(Tensor(a!) dactive, Tensor active, Tensor ends, Tensor(b!)? sum) "
      "-> ()");
  library.def("expert_add_(Tensor(a!) sum, Tensor terms, Tensor ends) -> ()");
}

namespace {

MaybeList listed(std::initializer_list<Tensor> tensors) {
  MaybeList list;
  for (const Tensor& tensor : tensors) list.push_back(if_defined(tensor));
  return list;
}

// `others`: the inputs from kChange on.
Tensor norm_backward(const NormOfSlots& norm, std::initializer_list<Tensor> others,
                     const ColumnSums& sums) {
  static const auto op =
      kernels::find_op<Tensor(const Tensor&, const MaybeList&, const MaybeList&)>(
          "ballast::expert_norm_backward");
  const auto& [dnormed, x, order, mean, inverse, weight] = norm;
  MaybeList inputs = listed({x, order.row_of_slot, order.ends, mean, inverse, weight});
  for (const Tensor& other : others) inputs.push_back(if_defined(other));
  return op.call(dnormed, inputs,
                 listed({sums.norm, sums.norm_bias, sums.down_bias, sums.embeddings}));
}

}  // namespace

NormedSlots normalize_slots(const Tensor& x, const SlotOrder& order, const ChangeSoFar& so_far,
                            const Tensor& weight, const Tensor& bias) {
  static const auto op = kernels::find_op<std::tuple<Tensor, Tensor, Tensor>(
      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const OptionalTensor&, const Tensor&, const Tensor&)>("ballast::expert_normalize");
  const auto [normed, mean, inverse] =
      op.call(x, if_defined(order.row_of_slot), if_defined(order.ends), if_defined(so_far.before),
              if_defined(so_far.change), weight, bias);
  return {normed, mean, inverse};
}

GatedSlots gate_slots(const Tensor& x, const SlotOrder& order, const ChangeSoFar& so_far,
                      const Tensor& embeddings) {
  static const auto op = kernels::find_op<std::tuple<Tensor, Tensor>(
      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const Tensor&, const OptionalTensor&, const OptionalTensor&)>("ballast::expert_gate");
  const auto [y, gates] =
      op.call(x, if_defined(order.row_of_slot), if_defined(order.ends), if_defined(so_far.before),
              so_far.change, if_defined(so_far.bias), if_defined(embeddings));
  return {y, embeddings.defined() ? gates : Tensor()};
}

GateGradient gate_slots_backward(const Tensor& dy, const SlotOrder& order,
                                 const ChangeSoFar& so_far, const Tensor& gates) {
  static const auto op = kernels::find_op<std::tuple<Tensor, Tensor>(
      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const Tensor&, const OptionalTensor&, const OptionalTensor&)>(
      "ballast::expert_gate_backward");
  const auto [dchange, dscores] =
      op.call(dy, if_defined(order.row_of_slot), if_defined(order.ends), if_defined(so_far.before),
              so_far.change, if_defined(so_far.bias), if_defined(gates));
  return {dchange, gates.defined() ? dscores : Tensor()};
}

Tensor norm_backward_at_slots(const NormOfSlots& norm, const Tensor& change, const Tensor& dchange,
                              const ColumnSums& sums) {
  return norm_backward(norm, {change, dchange, {}, {}, {}, {}}, sums);
}

Tensor norm_backward_at_rows(const NormOfSlots& norm, const GradientAtRows& meeting,
                             const ColumnSums& sums) {
  return norm_backward(
      norm, {{}, meeting.dchange, meeting.dy, meeting.gates, meeting.dscores, meeting.embeddings},
      sums);
}

Tensor ends_of_experts(const Tensor& rows, at::IntArrayRef rows_of_expert) {
  static const auto op =
      kernels::find_op<Tensor(const Tensor&, at::IntArrayRef)>("ballast::expert_ends");
  return op.call(rows, rows_of_expert);
}

Tensor padded_slots(const Tensor& ends, int64_t block) {
  static const auto op =
      kernels::find_op<Tensor(const Tensor&, int64_t)>("ballast::expert_padded_slots");
  return op.call(ends, block);
}

void add_bias_relu(const Tensor& y, const Tensor& ends, const Tensor& bias) {
  static const auto op = kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&)>(
      "ballast::expert_bias_relu_");
  op.call(y, ends, bias);
}

void take_back_relu_by_expert(const Tensor& dactive, const Tensor& active, const Tensor& ends,
                              const Tensor& sum) {
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&)>(
          "ballast::expert_take_back_relu_");
  op.call(dactive, active, ends, if_defined(sum));
}

void add_to_experts(const Tensor& sum, const Tensor& terms, const Tensor& ends) {
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&)>("ballast::expert_add_");
  op.call(sum, terms, ends);
}

}  // namespace ballast::experts
