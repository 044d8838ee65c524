// SPDX-License-Identifier: Apache-2.0
#include "ballast/experiments/run_outcome.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>

#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast {
namespace {

using nlohmann::json;

constexpr size_t kFewestMeasured = 4, kPassedOver = 2;

double median_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

double busiest_of(const json& record) {
  double most = 0;
  for (const json& layer : record.value("experts", json::array()))
    most = std::max(most, layer.value("busiest_share", 0.0));
  return most;
}

// Numbers that were not finite are null.
std::optional<RunOutcome::Routed> routed(const json& record, const char* loss) {
  if (!record.contains(loss) || !record.at(loss).is_number()) return std::nullopt;
  return RunOutcome::Routed{record.at(loss).get<double>(), busiest_of(record), {}};
}

void add_step(RunOutcome& outcome, const json& record) {
  outcome.step = record.at("step");
  outcome.seconds = record.value("seconds", 0.0);
  const int64_t tokens = record.value("tokens", int64_t{0});
  const double rate = record.value("tokens_per_second", 0.0);
  if (rate > 0) outcome.step_seconds.push_back(static_cast<double>(tokens - outcome.tokens) / rate);
  if (record.contains("parts")) outcome.step_parts.push_back(record.at("parts"));
  outcome.tokens = tokens;
  outcome.was_skipped = record.contains("skip_reason");
}

void add_validation(RunOutcome& outcome, const json& record) {
  outcome.greedy = routed(record, "valid_loss");
  outcome.priced.reset();
  if (outcome.greedy) outcome.validations.push_back({outcome.tokens, outcome.greedy->loss});
  const json other = record.value("other_routing", json::object());
  if (other.empty()) return;
  const bool is_priced = other.value("routing", "") == "priced";
  (is_priced ? outcome.priced : outcome.greedy) = routed(other, "loss");
  if (!is_priced) outcome.priced = routed(record, "valid_loss");
  if (outcome.greedy) outcome.greedy->routing = "greedy";
  if (outcome.priced) outcome.priced->routing = "priced";
}

}  // namespace

std::optional<RunOutcome::Routed> RunOutcome::best() const {
  if (!greedy || !priced) return greedy ? greedy : priced;
  return priced->loss < greedy->loss ? priced : greedy;
}

std::optional<double> RunOutcome::loss_at(int64_t at) const {
  const auto after =
      std::ranges::find_if(validations, [&](const Point& point) { return point.tokens >= at; });
  if (after == validations.end()) return std::nullopt;
  if (after->tokens == at) return after->loss;
  if (after == validations.begin()) return std::nullopt;
  const Point& before = *(after - 1);
  // Losses fall about evenly with the logarithm of tokens.
  const auto log = [](int64_t tokens) { return std::log(static_cast<double>(tokens)); };
  const double share = (log(at) - log(before.tokens)) / (log(after->tokens) - log(before.tokens));
  return before.loss + share * (after->loss - before.loss);
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
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json record = parse_json_or_discard(line);
    if (!record.is_object() || !record.value("step", json()).is_number_integer()) continue;
    if (record.contains("valid_loss")) {
      add_validation(outcome, record);
    } else if (record.contains("loss")) {
      add_step(outcome, record);
    }
  }
  return outcome;
}

}  // namespace ballast
