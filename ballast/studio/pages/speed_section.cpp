// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

constexpr size_t kBuckets = 60;
constexpr size_t kNamedSystems = 6;  // of more a sentence names the extremes alone

struct Part {
  const char *key, *name;
};
constexpr std::array<Part, 7> kParts = {{{"attention", "attention"},
                                         {"feed_forward", "feed-forward"},
                                         {"experts", "experts"},
                                         {"assignment", "assignment"},
                                         {"communication", "communication"},
                                         {"vocabulary", "vocabulary"},
                                         {"optimizer", "optimizer"}}};
constexpr size_t kAssignment = 3, kCommunication = 4;

// The value below which `part` of the sorted values lie.
double quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(std::lround(part * static_cast<double>(sorted.size() - 1)))];
}

std::vector<double> sorted_rates(std::vector<const record::StepRecord*> steps) {
  std::vector<double> rates;
  for (const record::StepRecord* step : steps) {
    if (std::isfinite(step->tokens_per_second)) rates.push_back(step->tokens_per_second);
  }
  std::ranges::sort(rates);
  return rates;
}

// Medians of runs of steps one after another, with the band that holds 80 % of the steps.
figures::Series rate_series(const System& system, double unit) {
  figures::Series series;
  series.name = system.title;
  series.style = system.style;
  if (system.runs.empty()) return series;
  const std::vector<const record::StepRecord*> steps = settled_steps(system.runs.front());
  const size_t length = std::max<size_t>(1, (steps.size() + kBuckets - 1) / kBuckets);
  for (size_t start = 0; start < steps.size(); start += length) {
    const size_t end = std::min(steps.size(), start + length);
    const std::vector<double> rates = sorted_rates(
        {steps.begin() + static_cast<int64_t>(start), steps.begin() + static_cast<int64_t>(end)});
    if (rates.empty()) continue;
    const double x = steps[(start + end - 1) / 2]->seconds / unit;
    series.points.push_back({x, median_of(rates)});
    series.band.push_back({x, quantile(rates, 0.1), quantile(rates, 0.9)});
  }
  return series;
}

std::string rates_in_words(const Comparison& comparison) {
  struct Rate {
    std::string name;
    std::vector<double> sorted;
    bool is_alone;
  };
  std::vector<Rate> rates;
  for (const System& system : comparison.systems) {
    if (!system.is_trained()) continue;
    std::vector<double> sorted = sorted_rates(settled_steps(system.runs.front()));
    if (!sorted.empty())
      rates.push_back({system.name, std::move(sorted), system.alone.has_value()});
  }
  if (rates.empty()) return "";
  const auto median = [](const Rate& rate) { return median_of(rate.sorted); };
  if (rates.size() > kNamedSystems) {
    const Rate &slow = *std::ranges::min_element(rates, {}, median),
               &fast = *std::ranges::max_element(rates, {}, median);
    return fmt::format(
        "The fastest system is {} with a median of {} tokens a second, the slowest {} "
        "with {}.",
        fast.name, count_text(median(fast)), slow.name, count_text(median(slow)));
  }
  std::vector<std::string> words;
  for (const Rate& rate : rates)
    words.push_back(rate.is_alone
                        ? fmt::format("{} {} (measured alone)", rate.name, count_text(median(rate)))
                        : fmt::format("{} {} (80 % of its steps {} to {})", rate.name,
                                      count_text(median(rate)),
                                      count_text(quantile(rate.sorted, 0.1)),
                                      count_text(quantile(rate.sorted, 0.9))));
  return fmt::format("Median tokens a second: {}.", in_words(words));
}

void add_rates(Page& page, const Comparison& comparison) {
  double longest = 0;
  for (const System& system : comparison.systems)
    longest = std::fmax(longest, result_of(system).seconds);
  const TimeUnit time = time_unit(longest);
  const std::string sentence = rates_in_words(comparison);
  std::vector<figures::LineChart> charts;
  for (const Panel& panel : comparison.panels) {
    figures::LineChart chart;
    chart.title = "Tokens a second over the run";
    chart.description = sentence;
    chart.heading = comparison.panels.size() > 1 ? panel.title : "";
    chart.x = {.label = "training time, " + time.name, .low = 0};
    chart.y = {.label = "tokens a second", .low = 0};
    for (const size_t i : panel.systems) {
      if (comparison.systems[i].alone) continue;  // the same at every step
      figures::Series series = rate_series(comparison.systems[i], time.seconds);
      if (series.points.size() > 1) chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  }
  const bool is_alone = std::ranges::any_of(
      comparison.systems, [](const System& system) { return system.alone && system.is_trained(); });
  if (is_alone)
    page.note(
        "Systems trained side by side: a step is taken to last what it did when it was measured "
        "alone, so that there is no course over the run to be drawn.");
  if (charts.empty() && is_alone && !sentence.empty())
    page.paragraph(sentence);
  else if (charts.empty())
    page.note("Too few steps were done to tell how fast they are.");
  else
    page.figure("speed", charts, sentence);
}

// Microseconds a token of each part, then of what is left; empty: no step told its parts.
std::vector<double> parts_of(const RunRecord& run) {
  std::vector<double> sums(kParts.size() + 1, 0);
  double steps = 0;
  for (const record::StepRecord* step : settled_steps(run)) {
    if (step->parts.empty() || !(step->tokens_per_second > 0) || !(step->tokens > 0)) continue;
    const double tokens = step->tokens / static_cast<double>(step->step);
    double rest = 1 / step->tokens_per_second;
    for (size_t i = 0; i < kParts.size(); ++i) {
      const auto part = step->parts.find(kParts[i].key);
      if (part == step->parts.end()) continue;
      sums[i] += part->second / tokens;
      rest -= part->second / tokens;
    }
    sums.back() += std::max(0.0, rest);
    ++steps;
  }
  if (steps == 0) return {};
  for (double& sum : sums) sum *= 1e6 / steps;
  return sums;
}

// Of runs that did not record all parts: what their layers of experts tell.
std::vector<double> parts_of_layers(const RunRecord& run) {
  std::vector<double> sums(kParts.size() + 1, 0);
  double steps = 0;
  for (const record::StepRecord* step : settled_steps(run)) {
    if (!(step->tokens_per_second > 0) || !(step->tokens > 0)) continue;
    const double tokens = step->tokens / static_cast<double>(step->step);
    double rest = 1 / step->tokens_per_second;
    for (const record::LayerStep& layer : step->layers) {
      const double assign = std::fmax(0, layer.assign_seconds) / tokens,
                   exchange = std::fmax(0, layer.exchange_seconds) / tokens;
      sums[kAssignment] += assign;
      sums[kCommunication] += exchange;
      rest -= assign + exchange;
    }
    sums.back() += std::max(0.0, rest);
    ++steps;
  }
  if (sums[kAssignment] + sums[kCommunication] == 0) return {};  // they tell nothing
  for (double& sum : sums) sum *= 1e6 / steps;
  return sums;
}

double total_of(const figures::Bar& bar) {
  double total = 0;
  for (const double value : bar.values) total += value;
  return total;
}

std::string bar_in_words(const figures::BarChart& chart, const figures::Bar& bar) {
  const double total = total_of(bar);
  const auto largest = std::ranges::max_element(bar.values.begin(), bar.values.end() - 1);
  const auto part = static_cast<size_t>(largest - bar.values.begin());
  std::string text = fmt::format("{} {:.2f} µs", bar.name, total);
  if (*largest > 0)
    text += fmt::format(", {:.0f} % of it {}", 100 * *largest / total, chart.parts[part]);
  if (bar.values[kAssignment] > 0 && part != kAssignment)
    text += fmt::format(" and {:.1f} % assignment", 100 * bar.values[kAssignment] / total);
  return text;
}

std::string bars_in_words(const figures::BarChart& chart) {
  if (chart.bars.size() > kNamedSystems) {
    const auto share = [](const figures::Bar& bar) {
      return bar.values[kAssignment] / total_of(bar);
    };
    const figures::Bar &least = *std::ranges::min_element(chart.bars, {}, total_of),
                       &most = *std::ranges::max_element(chart.bars, {}, total_of),
                       &assigns = *std::ranges::max_element(chart.bars, {}, share);
    return fmt::format(
        "A token takes from {:.2f} µs ({}) to {:.2f} µs ({}); assignment takes most of {}, {:.1f} "
        "%.",
        total_of(least), least.name, total_of(most), most.name, assigns.name, 100 * share(assigns));
  }
  std::vector<std::string> words;
  for (const figures::Bar& bar : chart.bars) words.push_back(bar_in_words(chart, bar));
  return fmt::format("Time a token takes: {}.", in_words(words));
}

void add_parts(Page& page, const Comparison& comparison) {
  figures::BarChart chart;
  chart.title = "Where the time goes";
  chart.label = "microseconds a token";
  for (const Part& part : kParts) chart.parts.emplace_back(part.name);
  chart.parts.emplace_back("other");
  std::vector<std::string> without, not_alone;
  for (const System& system : comparison.systems) {
    if (!system.is_trained()) continue;
    std::vector<double> parts = parts_of(system.runs.front());
    if (parts.empty()) {
      parts = parts_of_layers(system.runs.front());
      if (parts.empty() && system.alone) not_alone.push_back(system.name);
      if (parts.empty()) continue;
      without.push_back(system.name);
    }
    chart.bars.push_back({system.name, std::move(parts)});
  }
  if (!not_alone.empty())
    page.note(fmt::format(
        "{}trained side by side: times of parts were not measured alone.",
        chart.bars.empty() ? "Where the time goes is not known: " : in_words(not_alone) + ": "));
  if (chart.bars.empty() && !not_alone.empty()) return;
  if (chart.bars.empty()) {
    page.note("How long the parts of a step took was not recorded.");
    return;
  }
  if (!without.empty())
    page.note(fmt::format(
        "{}: written before steps recorded the time of their parts; of those only assignment and "
        "communication are told apart.",
        in_words(without)));
  chart.description = bars_in_words(chart);
  page.figure("time_parts", chart, chart.description);
}

}  // namespace

void add_speed(Page& page, const Comparison& comparison) {
  page.section("speed", "Speed", "Speed and where the time goes");
  add_rates(page, comparison);
  add_parts(page, comparison);
}

}  // namespace ballast::pages
