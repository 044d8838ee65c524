// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/run_outcome.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "ballast/system/file.h"

namespace ballast::experiments {
namespace {

constexpr size_t kFewestMeasured = 4, kPassedOver = 2;

double median_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

double or_zero(double value) { return std::isfinite(value) ? value : 0; }

std::optional<RunOutcome::Routed> routed(const record::RoutingUse& use) {
  if (!std::isfinite(use.loss)) return std::nullopt;
  double busiest = 0;
  for (const record::LayerUse& layer : use.layers)
    busiest = std::max(busiest, or_zero(layer.busiest_share));
  return RunOutcome::Routed{use.loss, busiest, {}};
}

void add_step(RunOutcome& outcome, const record::StepRecord& step) {
  outcome.step = step.step;
  outcome.seconds = or_zero(step.seconds);
  const auto tokens = static_cast<int64_t>(or_zero(step.tokens));
  if (step.tokens_per_second > 0)
    outcome.step_seconds.push_back(static_cast<double>(tokens - outcome.tokens) /
                                   step.tokens_per_second);
  if (!step.parts.empty()) outcome.step_parts.push_back(step.parts);
  outcome.tokens = tokens;
  outcome.was_skipped = step.skipped;
}

void add_validation(RunOutcome& outcome, const std::vector<record::RoutingUse>& routings) {
  const record::RoutingUse& main = routings.front();
  outcome.greedy = routed(main);
  if (routings.size() < 2) return;
  const record::RoutingUse& other = routings[1];
  const bool is_priced = other.routing == "priced";
  outcome.greedy = routed(is_priced ? main : other);
  outcome.priced = routed(is_priced ? other : main);
  if (outcome.greedy) outcome.greedy->routing = "greedy";
  if (outcome.priced) outcome.priced->routing = "priced";
}

}  // namespace

std::optional<RunOutcome::Routed> RunOutcome::best() const {
  if (!greedy || !priced) return greedy ? greedy : priced;
  return priced->loss < greedy->loss ? priced : greedy;
}

std::map<std::string, double> RunOutcome::settled_step_parts() const {
  std::map<std::string, double> means;
  const std::span usual = std::span(step_parts).last((step_parts.size() + 2) / 3);
  for (const auto& parts : usual) {
    for (const auto& [name, seconds] : parts)
      means[name] += seconds / static_cast<double>(usual.size());
  }
  return means;
}

std::optional<double> RunOutcome::settled_step_seconds() const {
  const size_t count = std::max(kFewestMeasured, step_seconds.size() / 3);
  if (count + kPassedOver > step_seconds.size()) return std::nullopt;
  return median_of(std::span(step_seconds).last(count));
}

std::optional<double> RunOutcome::early_step_seconds() const {
  const size_t first = std::max(kPassedOver, step_seconds.size() / 10);
  const size_t end = std::max(first + 1, step_seconds.size() / 3);
  if (end > step_seconds.size()) return std::nullopt;
  return median_of(std::span(step_seconds).subspan(first, end - first));
}

RunOutcome read_outcome(const std::filesystem::path& run) {
  RunOutcome outcome;
  if (!fs::exists(run / "metrics.jsonl")) return outcome;
  const record::Metrics metrics = record::read_metrics(run / "metrics.jsonl");
  for (const record::StepRecord& step : metrics.steps) add_step(outcome, step);
  std::ranges::copy_if(
      metrics.validations, std::back_inserter(outcome.validations),
      [](const record::ValidationPoint& point) { return std::isfinite(point.loss); });
  if (metrics.last_validation) add_validation(outcome, metrics.last_validation->routings);
  return outcome;
}

}  // namespace ballast::experiments
