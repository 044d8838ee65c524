// SPDX-License-Identifier: Apache-2.0
// Balanced assignment as an operation of torch: what ballast.assign calls for tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "ballast/assignment/certificate.h"
#include "ballast/experts/assigner.h"

namespace ballast::python {
namespace {

using at::Tensor;

std::vector<int64_t> numbers_of(const Tensor& tensor) {
  const Tensor numbers = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* data = numbers.const_data_ptr<int64_t>();
  return {data, data + numbers.numel()};
}

// [P, 5] float64 on the CPU: valid, primal, dual, gap, relative gap.
Tensor certificates_of(const experts::TensorAssignment& found) {
  const auto statuses = experts::read_status(found);
  const Tensor table = at::empty({std::ssize(statuses), 5}, at::kDouble);
  auto* row = table.mutable_data_ptr<double>();
  for (const assignment::AssignmentStatus& status : statuses) {
    const double values[] = {static_cast<double>(status.valid), status.primal, status.dual,
                             status.gap,
                             assignment::relative_gap(status.primal, status.dual, status.blind)};
    row = std::ranges::copy(values, row).out;
  }
  return table;
}

// scores [P, T, E], -inf where a pair is forbidden; counted [P, T] bool; capacities [E] -> experts
// [P, T], loads [P, E], prices [P, E] float64, certificates. Waits for the device.
std::tuple<Tensor, Tensor, Tensor, Tensor> balanced_assignment(
    const Tensor& scores, const std::optional<Tensor>& counted,
    const std::optional<Tensor>& capacities, bool forbids, double gap) {
  experts::AssignOptions options{
      .non_finite = forbids ? assignment::NonFinite::kForbid : assignment::NonFinite::kReject,
      .gap = gap};
  if (capacities) options.bounds = assignment::at_most(numbers_of(*capacities), scores.size(-2));
  experts::Assigner assigner(options);
  const experts::TensorAssignment found =
      assigner.assign(scores, {.counted = counted.value_or(Tensor())});
  assigner.check(found);
  return {found.expert_of_token, found.loads, found.prices, certificates_of(found)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "balanced_assignment(Tensor scores, Tensor? counted, Tensor? capacities, bool forbids, float "
      "gap) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(ballast, CompositeExplicitAutograd, library) {
  library.impl("balanced_assignment", balanced_assignment);
}

}  // namespace ballast::python
