// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_totals.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace ballast {
namespace {

using at::Tensor;

constexpr int64_t kCounts = 3;  // of each layer: matches, tokens, groups; then E prices

}  // namespace

StepTotals sum_over_workers(const Tensor& loss_sum, const Tensor& expert_norm,
                            const LanguageModel& model, Communicator& workers) {
  StepTotals totals;
  const auto doubles = loss_sum.options().dtype(at::kDouble);
  std::vector<Tensor> parts = {loss_sum.to(at::kDouble).view({1}),
                               expert_norm.to(at::kDouble).square().view({1})};
  for (const auto& layer : model.base_layers()) {
    const RoutingStats stats = layer->router().take_stats();
    totals.layers.push_back(
        {.place = layer->place(),
         .relative_gap = stats.relative_gap,
         .assign_seconds = stats.assign_seconds,
         .exchange_seconds = workers.take_all_to_all_seconds(static_cast<int>(layer->place()))});
    parts.push_back(stats.greedy_matches.to(at::kDouble).view({1}));
    parts.push_back(at::zeros({2}, doubles).add_(static_cast<double>(stats.tokens)));
    parts.back()[1].fill_(static_cast<double>(stats.groups));
    parts.push_back(stats.price_sum.defined()
                        ? stats.price_sum
                        : at::zeros(layer->router().prices().sizes(), doubles));
  }
  const Tensor sums = at::cat(parts).cpu();
  workers.all_reduce(sums, Reduction::kSum, {"step totals"});
  const auto* values = sums.const_data_ptr<double>();
  totals.loss_sum = values[0];
  totals.expert_norm = std::sqrt(values[1]);
  int64_t next = 2;
  for (LayerStats& layer : totals.layers) {
    const int64_t experts = parts.back().numel();  // as many in each layer
    layer.greedy_share = values[next] / values[next + 1];
    const double groups = values[next + 2];
    if (groups > 0) layer.prices = sums.narrow(0, next + kCounts, experts) / groups;
    next += kCounts + experts;
  }
  return totals;
}

}  // namespace ballast
