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

constexpr int64_t kScalars = 3;  // loss, norm of shared, square of the experts' norm
constexpr int64_t kCounts = 3;   // of each layer: matches, tokens, groups; then E prices
constexpr int64_t kMaxima = 3;   // of each layer: gap, seconds of assigning and of exchanging

// One layer's part of what is summed.
Tensor counts_of(const RoutingStats& stats, int64_t experts, const at::TensorOptions& doubles) {
  const Tensor sizes = at::empty({2}, at::kDouble);
  sizes.mutable_data_ptr<double>()[0] = static_cast<double>(stats.tokens);
  sizes.mutable_data_ptr<double>()[1] = static_cast<double>(stats.groups);
  return at::cat({stats.greedy_matches.to(at::kDouble).view({1}), sizes.to(doubles.device()),
                  stats.price_sum.defined() ? stats.price_sum : at::zeros({experts}, doubles)});
}

void take_maxima(std::vector<LayerStats>& layers, Communicator& workers) {
  if (layers.empty()) return;
  const Tensor maxima = at::empty({static_cast<int64_t>(layers.size()) * kMaxima}, at::kDouble);
  auto* next = maxima.mutable_data_ptr<double>();
  for (const LayerStats& layer : layers) {
    for (const double value : {layer.relative_gap, layer.assign_seconds, layer.exchange_seconds})
      *next++ = value;
  }
  workers.all_reduce(maxima, Reduction::kMax, {"step maxima"});
  next = maxima.mutable_data_ptr<double>();
  for (LayerStats& layer : layers) {
    for (double* value : {&layer.relative_gap, &layer.assign_seconds, &layer.exchange_seconds})
      *value = *next++;
  }
}

}  // namespace

StepTotals sum_over_workers(const WorkerTotals& own, const LanguageModel& model,
                            Communicator& workers) {
  StepTotals totals;
  const auto doubles = own.loss_sum.options().dtype(at::kDouble);
  const auto scalar = [](const Tensor& value) { return value.to(at::kDouble).view({1}); };
  std::vector<Tensor> parts = {scalar(own.loss_sum),
                               scalar(own.shared_norm) * (workers.rank() == 0 ? 1.0 : 0.0),
                               scalar(own.expert_norm).square()};
  for (const auto& layer : model.base_layers()) {
    const RoutingStats stats = layer->router().take_stats();
    const double exchanging = workers.take_all_to_all_seconds(static_cast<int>(layer->place()));
    totals.layers.push_back({.place = layer->place(),
                             .relative_gap = stats.relative_gap,
                             .assign_seconds = stats.assign_seconds,
                             .exchange_seconds = exchanging});
    parts.push_back(counts_of(stats, layer->router().prices().size(0), doubles));
  }
  const Tensor sums = at::cat(parts).cpu();
  workers.all_reduce(sums, Reduction::kSum, {"step totals"});
  take_maxima(totals.layers, workers);
  const auto* values = sums.const_data_ptr<double>();
  totals.loss_sum = values[0];
  totals.shared_norm = values[1];
  totals.expert_norm = std::sqrt(values[2]);
  int64_t next = kScalars;
  for (size_t i = 0; i < totals.layers.size(); ++i) {
    LayerStats& layer = totals.layers[i];
    const int64_t experts = model.base_layers()[i]->router().prices().size(0);
    layer.greedy_share = values[next] / values[next + 1];
    const double groups = values[next + 2];
    if (groups > 0) layer.prices = sums.narrow(0, next + kCounts, experts) / groups;
    next += kCounts + experts;
  }
  return totals;
}

}  // namespace ballast
