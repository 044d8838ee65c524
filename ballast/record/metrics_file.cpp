// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ballast/record/append_file.h"
#include "ballast/record/json_fields.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast::record {
namespace {

using nlohmann::json;

StepRecord step_of(const json& record) {
  StepRecord step;
  step.step = count_in(record, "step");
  step.loss = number_in(record, "loss");
  step.learning_rate = number_in(record, "learning_rate");
  step.tokens = number_in(record, "tokens");
  step.seconds = number_in(record, "seconds");
  step.tokens_per_second = number_in(record, "tokens_per_second");
  for (const json& layer : list_in(record, "layers"))
    step.layers.push_back({.layer = count_in(layer, "layer"),
                           .assign_seconds = number_in(layer, "assign_seconds"),
                           .exchange_seconds = number_in(layer, "exchange_seconds"),
                           .mean_gate = number_in(layer, "mean_gate"),
                           .greedy_share = number_in(layer, "greedy_share"),
                           .relative_gap = number_in(layer, "relative_gap"),
                           .shortfall_bound = number_in(layer, "shortfall_bound"),
                           .dropped_share = number_in(layer, "dropped_share"),
                           .passed_share = number_in(layer, "passed_share"),
                           .balance_loss = number_in(layer, "balance_loss")});
  step.parts = named_numbers_in(record, "parts");
  step.skipped = record.contains("skip_reason");
  return step;
}

// Validations know their step; what was trained until then, the line of that step knows.
void add_progress(Metrics& metrics) {
  for (ValidationPoint& point : metrics.validations) {
    const auto step = std::ranges::lower_bound(metrics.steps, point.step, {}, &StepRecord::step);
    if (step == metrics.steps.end() || step->step != point.step) continue;
    point.tokens = step->tokens;
    point.seconds = step->seconds;
  }
}

}  // namespace

Metrics read_metrics(const std::filesystem::path& path) {
  Metrics metrics;
  json last_validation;
  const std::string text = read_text(path);
  metrics.is_torn = !text.empty() && !text.ends_with('\n');
  for (const std::string_view line : whole_lines(text)) {
    const json record = parse_json_or_discard(line);
    if (!record.is_object() || !record.contains("step")) {
      ++metrics.damaged;
    } else if (record.contains("valid_loss")) {
      metrics.validations.push_back({.step = count_in(record, "step"),
                                     .loss = number_in(record, "valid_loss"),
                                     .valid_tokens = number_in(record, "valid_tokens"),
                                     .whole_split = field_in(record, "whole_split") == true});
      if (count_in(record, "step") >= count_in(last_validation, "step")) last_validation = record;
    } else if (record.contains("loss")) {
      metrics.steps.push_back(step_of(record));
    }
  }
  std::ranges::stable_sort(metrics.steps, {}, &StepRecord::step);
  std::ranges::stable_sort(metrics.validations, {}, &ValidationPoint::step);
  add_progress(metrics);
  if (!last_validation.is_null()) metrics.last_validation = validation_of_metrics(last_validation);
  return metrics;
}

std::vector<ValidationPoint> known_points(const std::vector<ValidationPoint>& points) {
  std::vector<ValidationPoint> known;
  for (const ValidationPoint& point : points) {
    if (point.tokens > 0 && std::isfinite(point.loss)) known.push_back(point);
  }
  return known;
}

double loss_at(const std::vector<ValidationPoint>& points, double tokens) {
  const std::vector<ValidationPoint> known = known_points(points);
  const auto after = std::ranges::lower_bound(known, tokens, {}, &ValidationPoint::tokens);
  if (after == known.end()) return kUnknown;
  if (after->tokens == tokens) return after->loss;
  if (after == known.begin()) return kUnknown;
  // Losses fall about evenly with the logarithm of tokens.
  const ValidationPoint& before = *(after - 1);
  const double part = std::log(tokens / before.tokens) / std::log(after->tokens / before.tokens);
  return before.loss + part * (after->loss - before.loss);
}

}  // namespace ballast::record
