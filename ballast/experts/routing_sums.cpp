// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "add_seen_assignment(Tensor(a!) sums, Tensor weights, Tensor best, Tensor expert, "
      "Tensor? prices) -> ()");
  library.def(
      "add_seen_gates(Tensor(a!) sums, Tensor weights, Tensor expert, Tensor slot_of_row, "
      "Tensor losses, int experts) -> ()");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;

double sum_of_gates(const Tensor& weights) {
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(weights.scalar_type(), "add_seen", [&] {
    const auto* const weight = weights.const_data_ptr<scalar_t>();
    for (int64_t t = 0; t < weights.size(0); ++t)
      sum += static_cast<double>(weight[t * weights.size(1)]);
  });
  return sum;
}

void add_prices(const Tensor& prices, double* sums) {
  const int64_t experts = prices.size(1);
  for (int64_t row = 0; row < prices.size(0); ++row) {
    const auto* const price = prices.const_data_ptr<double>() + row * experts;
    double mean = 0;
    for (int64_t e = 0; e < experts; ++e) mean += price[e];
    mean /= static_cast<double>(experts);
    for (int64_t e = 0; e < experts; ++e) sums[e] += price[e] - mean;
  }
}

void add_assignment_on_cpu(const Tensor& sums, const Tensor& weights, const Tensor& best,
                           const Tensor& expert, const OptionalTensor& prices) {
  auto* const sum = sums.mutable_data_ptr<double>();
  sum[kSumOfTokens] += static_cast<double>(weights.size(0));
  sum[kSumOfGates] += sum_of_gates(weights);
  const auto *const b = best.const_data_ptr<int32_t>(), *const e = expert.const_data_ptr<int32_t>();
  for (int64_t t = 0; t < best.numel(); ++t) sum[kSumOfBest] += b[t] == e[t] ? 1 : 0;
  if (!prices) return;
  sum[kSumOfGroups] += static_cast<double>(prices->size(0));
  add_prices(*prices, sum + kRoutingSums);
}

void add_gates_on_cpu(const Tensor& sums, const Tensor& weights, const Tensor& expert,
                      const Tensor& slot_of_row, const Tensor& losses, int64_t experts) {
  auto* const sum = sums.mutable_data_ptr<double>();
  sum[kSumOfTokens] += static_cast<double>(weights.size(0));
  sum[kSumOfGroups] += static_cast<double>(losses.size(0));
  sum[kSumOfGates] += sum_of_gates(weights);
  for (int64_t group = 0; group < losses.size(0); ++group)
    sum[kSumOfBalance] += losses.const_data_ptr<double>()[group];
  const auto *chosen = expert.const_data_ptr<int64_t>(),
             *slot = slot_of_row.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < expert.size(0); ++t) {
    int64_t choices = 0, places = 0;
    for (int64_t k = 0; k < expert.size(1); ++k, ++chosen, ++slot) {
      choices += *chosen < experts ? 1 : 0;
      places += *slot >= 0 ? 1 : 0;
    }
    sum[kSumOfChoices] += static_cast<double>(choices);
    sum[kSumOfDropped] += static_cast<double>(choices - places);
    sum[kSumOfPassedBy] += places == 0 ? 1 : 0;
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("add_seen_assignment", add_assignment_on_cpu);
  library.impl("add_seen_gates", add_gates_on_cpu);
}

void add_seen(const Tensor& sums, const SeenAssignment& seen) {
  const at::NoGradGuard no_grad;
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const OptionalTensor&)>("ballast::add_seen_assignment");
  op.call(sums, seen.weights.detach().contiguous(), seen.best.contiguous(),
          seen.expert.contiguous(), kernels::contiguous_if_defined(seen.prices));
}

void add_seen(const Tensor& sums, const SeenGates& seen) {
  const at::NoGradGuard no_grad;
  static const auto op =
      kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor&, int64_t)>("ballast::add_seen_gates");
  op.call(sums, seen.weights.detach().contiguous(), seen.expert.contiguous(),
          seen.slot_of_row.contiguous(), seen.losses, seen.experts);
}

}  // namespace ballast::experts
