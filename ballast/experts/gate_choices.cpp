// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_choices.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ballast/experts/gate_parts.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "gate_choices(Tensor logits, Tensor? lengths, Tensor(a!) expert, "
      "Tensor(b!) probability_sums) -> ()");
  library.def(
      "gate_balance(Tensor expert, Tensor probability_sums, float scale, Tensor(a!) losses, "
      "Tensor(b!) shares) -> ()");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;

}  // namespace

GateChoices gate_choices(const Tensor& logits, const Tensor& lengths, int64_t groups,
                         int64_t of_token) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(logits.dim() == 2 && groups > 0 && logits.size(0) % groups == 0,
              "gate_choices: want logits [T, E] of ", groups, " groups, got ", logits.sizes());
  TORCH_CHECK(of_token >= 1 && of_token <= logits.size(1),
              "gate_choices: want from one to all experts of a token, got ", of_token);
  TORCH_CHECK(!lengths.defined() || (lengths.numel() == logits.size(1) &&
                                     lengths.scalar_type() == logits.scalar_type()),
              "gate_choices: want lengths [E] in the type of the logits");
  const int64_t parts = num_gate_parts(logits.size(0) / groups);
  GateChoices result{
      .expert = at::empty({logits.size(0), of_token}, logits.options().dtype(at::kLong)),
      .probability_sums =
          at::empty({groups, parts, logits.size(1)}, logits.options().dtype(at::kDouble))};
  static const auto op =
      kernels::find_op<void(const Tensor&, const OptionalTensor&, const Tensor&, const Tensor&)>(
          "ballast::gate_choices");
  op.call(logits.detach().contiguous(), kernels::contiguous_if_defined(lengths), result.expert,
          result.probability_sums);
  return result;
}

GateBalance gate_balance(const Tensor& expert, const Tensor& probability_sums, double scale) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(expert.dim() == 2 && expert.scalar_type() == at::kLong &&
                  probability_sums.dim() == 3 && expert.size(0) % probability_sums.size(0) == 0,
              "gate_balance: want experts [T, K] and sums [P, C, E], got ", expert.sizes(), " and ",
              probability_sums.sizes());
  const int64_t groups = probability_sums.size(0), experts = probability_sums.size(2);
  GateBalance result{.losses = at::empty({groups}, probability_sums.options()),
                     .shares = at::empty({groups, experts}, probability_sums.options())};
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, double, const Tensor&, const Tensor&)>(
          "ballast::gate_balance");
  op.call(expert.contiguous(), probability_sums.contiguous(), scale, result.losses, result.shares);
  return result;
}

}  // namespace ballast::experts
