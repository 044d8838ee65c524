// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_totals.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>

namespace ballast::training {
namespace {

using at::Tensor;

constexpr int64_t kScalars = 4;  // loss; norms: what is divided squared, common, experts' squared
constexpr int64_t kMaxima = 3;   // of each layer: gap, seconds of assigning and of exchanging

int64_t prices_of(const experts::ExpertLayer& layer) {
  const experts::PriceAverage* const prices = layer.router().prices();
  return prices == nullptr ? 0 : prices->value().size(0);
}

// What one layer of the model saw, from the sums of all workers; returns how many numbers it read.
int64_t read_counts(const Tensor& sums, int64_t first, int64_t prices, LayerStats& layer) {
  const auto* seen = sums.const_data_ptr<double>() + first;
  const double tokens = seen[experts::kSumOfTokens], groups = seen[experts::kSumOfGroups],
               choices = seen[experts::kSumOfChoices];
  layer.greedy_share = seen[experts::kSumOfBest] / tokens;
  if (choices > 0) layer.dropped_share = seen[experts::kSumOfDropped] / choices;
  layer.passed_share = seen[experts::kSumOfPassedBy] / tokens;
  layer.mean_gate = seen[experts::kSumOfGates] / tokens;
  if (groups > 0) layer.balance_loss = seen[experts::kSumOfBalance] / groups;
  if (groups > 0 && prices > 0) {
    layer.prices = at::empty({prices}, at::kDouble);
    for (int64_t e = 0; e < prices; ++e)
      layer.prices.mutable_data_ptr<double>()[e] = seen[experts::kRoutingSums + e] / groups;
  }
  return experts::kRoutingSums + prices;
}

void take_maxima(std::vector<LayerStats>& layers, comm::Communicator& workers) {
  if (layers.empty()) return;
  const Tensor maxima = at::empty({static_cast<int64_t>(layers.size()) * kMaxima}, at::kDouble);
  auto* next = maxima.mutable_data_ptr<double>();
  for (const LayerStats& layer : layers) {
    for (const double value : {layer.relative_gap, layer.assign_seconds, layer.exchange_seconds})
      *next++ = value;
  }
  workers.all_reduce(maxima, comm::Reduction::kMax, {"step maxima"});
  next = maxima.mutable_data_ptr<double>();
  for (LayerStats& layer : layers) {
    for (double* value : {&layer.relative_gap, &layer.assign_seconds, &layer.exchange_seconds})
      *value = *next++;
  }
}

}  // namespace

StepSums sum_over_workers(const WorkerTotals& own, const model::LanguageModel& model,
                          step::StepWatch* watch) {
  comm::Communicator& workers = model.workers();
  const auto scalar = [](const Tensor& value) { return value.to(at::kDouble).view({1}); };
  const auto counts_if = [](bool counts) { return counts ? 1.0 : 0.0; };
  std::vector<Tensor> parts = {
      scalar(own.loss_sum) * counts_if(model.grid().shard() == 0),
      scalar(own.shard_norm).square() * counts_if(model.grid().replica() == 0),
      scalar(own.common_norm) * counts_if(workers.rank() == 0), scalar(own.expert_norm).square()};
  if (own.divided_norm.defined()) parts[1] += scalar(own.divided_norm).square();
  StepSums result;
  for (const auto& layer : model.expert_layers()) {
    result.layers.push_back(layer->router().take_stats());
    parts.push_back(result.layers.back().sums);
  }
  result.sums = at::cat(parts);
  const bool is_told = watch != nullptr && workers.size() > 1;
  if (is_told) watch->switch_to(step::StepPart::kCommunication);
  workers.all_reduce(result.sums, comm::Reduction::kSum, {"step totals"});
  if (is_told) watch->switch_to(step::StepPart::kOptimizer);
  return result;
}

void tell_host(StepSums& sums, const Tensor& norm) {
  std::vector<Tensor> parts = {norm.view(at::kByte), sums.sums.view(at::kByte)};
  for (const experts::RoutingStats& layer : sums.layers)
    for (const Tensor& status : layer.statuses) parts.push_back(status.flatten());
  sums.told = at::cat(parts);
}

StepTotals read_totals(const StepSums& of_step, const model::LanguageModel& model) {
  const Tensor told = of_step.told.cpu();
  const int64_t numbers = 1 + of_step.sums.size(0);
  int64_t read = numbers * static_cast<int64_t>(sizeof(double));
  const Tensor norm_and_sums = told.narrow(0, 0, read).view(at::kDouble);
  const Tensor sums = norm_and_sums.narrow(0, 1, numbers - 1);
  const auto* values = sums.const_data_ptr<double>();
  StepTotals totals;
  totals.loss_sum = values[0];
  totals.expert_norm = std::sqrt(values[3]);
  totals.clipped_by = *norm_and_sums.const_data_ptr<double>();
  int64_t next = kScalars;
  for (size_t i = 0; i < of_step.layers.size(); ++i) {
    const experts::ExpertLayer& layer = *model.expert_layers()[i];
    experts::RoutingStats seen = of_step.layers[i];
    for (Tensor& status : seen.statuses) {
      const Tensor here = told.narrow(0, read, status.numel()).view(status.sizes());
      read += status.numel();
      status = here;
    }
    totals.layers.push_back({.place = layer.place(),
                             .relative_gap = layer.router().largest_gap(seen),
                             .assign_seconds = seen.assigning.seconds(),
                             .exchange_seconds = layer.take_exchange_seconds()});
    next += read_counts(sums, next, prices_of(layer), totals.layers[i]);
  }
  take_maxima(totals.layers, model.workers());
  return totals;
}

}  // namespace ballast::training
