// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_slots.h"

#include <torch/library.h>

#include <optional>
#include <tuple>

#include "ballast/kernels/find_op.h"

namespace ballast {

using at::Tensor;
using Maybe = std::optional<Tensor>;
using MaybeList = c10::List<Maybe>;

// `inputs`: in the order of NormBackwardInputs; sums: in that of ColumnSums.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "expert_normalize(Tensor x, Tensor? row_of_slot, Tensor? before, Tensor? change, "
      "Tensor weight, Tensor bias) -> (Tensor, Tensor, Tensor)");
  library.def(
      "expert_gate(Tensor x, Tensor? row_of_slot, Tensor? before, Tensor change, "
      "Tensor? embeddings) -> (Tensor, Tensor)");
  library.def(
      "expert_gate_backward(Tensor dy, Tensor? row_of_slot, Tensor? before, Tensor change, "
      "Tensor gates) -> (Tensor, Tensor)");
  library.def("expert_norm_backward(Tensor dnormed, Tensor?[] inputs, Tensor?[] sums) -> Tensor");
}

namespace {

Maybe maybe(const Tensor& x) { return x.defined() ? Maybe(x) : std::nullopt; }

MaybeList listed(std::initializer_list<Tensor> tensors) {
  MaybeList list;
  for (const Tensor& tensor : tensors) list.push_back(maybe(tensor));
  return list;
}

Tensor norm_backward(const Tensor& dnormed, const MaybeList& inputs, const ColumnSums& sums) {
  static const auto op = find_op<Tensor(const Tensor&, const MaybeList&, const MaybeList&)>(
      "ballast::expert_norm_backward");
  return op.call(dnormed, inputs,
                 listed({sums.norm, sums.norm_bias, sums.down_bias, sums.embeddings}));
}

}  // namespace

NormedSlots normalize_slots(const Tensor& x, const Tensor& row_of_slot, const ChangeSoFar& so_far,
                            const Tensor& weight, const Tensor& bias) {
  static const auto op = find_op<std::tuple<Tensor, Tensor, Tensor>(
      const Tensor&, const Maybe&, const Maybe&, const Maybe&, const Tensor&, const Tensor&)>(
      "ballast::expert_normalize");
  const auto [normed, mean, inverse] =
      op.call(x, maybe(row_of_slot), maybe(so_far.before), maybe(so_far.change), weight, bias);
  return {normed, mean, inverse};
}

GatedSlots gate_slots(const Tensor& x, const Tensor& row_of_slot, const ChangeSoFar& so_far,
                      const Tensor& embeddings) {
  static const auto op =
      find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Maybe&, const Maybe&, const Tensor&,
                                         const Maybe&)>("ballast::expert_gate");
  const auto [y, gates] =
      op.call(x, maybe(row_of_slot), maybe(so_far.before), so_far.change, maybe(embeddings));
  return {y, embeddings.defined() ? gates : Tensor()};
}

GateGradient gate_slots_backward(const Tensor& dy, const Tensor& row_of_slot,
                                 const ChangeSoFar& so_far, const Tensor& gates) {
  static const auto op =
      find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Maybe&, const Maybe&, const Tensor&,
                                         const Tensor&)>("ballast::expert_gate_backward");
  const auto [dchange, dscores] =
      op.call(dy, maybe(row_of_slot), maybe(so_far.before), so_far.change, gates);
  return {dchange, dscores};
}

Tensor norm_backward_at_slots(const NormOfSlots& norm, const Tensor& change, const Tensor& dchange,
                              const ColumnSums& sums) {
  return norm_backward(norm.dnormed,
                       listed({norm.x,
                               norm.row_of_slot,
                               norm.mean,
                               norm.inverse,
                               norm.weight,
                               change,
                               dchange,
                               {},
                               {},
                               {},
                               {}}),
                       sums);
}

Tensor norm_backward_at_rows(const NormOfSlots& norm, const GradientAtRows& meeting,
                             const ColumnSums& sums) {
  return norm_backward(norm.dnormed,
                       listed({norm.x,
                               norm.row_of_slot,
                               norm.mean,
                               norm.inverse,
                               norm.weight,
                               {},
                               meeting.dchange,
                               meeting.dy,
                               meeting.gates,
                               meeting.dscores,
                               meeting.embeddings}),
                       sums);
}

}  // namespace ballast
