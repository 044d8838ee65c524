// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ballast/pages/results.h"
#include "ballast/pages/sections.h"
#include "ballast/pages/words.h"

namespace ballast {
namespace {

constexpr size_t kBuckets = 120;
constexpr double kRounding = 1e-9;  // what the exact solver promises, docs/assignment.md

using Number = double LayerStep::*;

// The mean over layers of a number in each step, averaged over steps one after another.
Series series_of(const System& system, Number number, double factor) {
  Series series;
  series.name = system.title;
  series.style = system.style;
  const std::vector<StepRecord>& steps = system.runs.front().steps;
  const size_t length = std::max<size_t>(1, (steps.size() + kBuckets - 1) / kBuckets);
  for (size_t start = 0; start < steps.size(); start += length) {
    std::vector<double> values;
    const size_t end = std::min(steps.size(), start + length);
    for (size_t i = start; i < end; ++i) {
      for (const LayerStep& layer : steps[i].layers) values.push_back(layer.*number);
    }
    const Spread spread = spread_of(values);
    if (spread.count > 0)
      series.points.push_back(
          {static_cast<double>(steps[(start + end - 1) / 2].step), factor * spread.mean});
  }
  return series;
}

struct Chart {
  Number number;
  const char *heading, *label;
  double factor = 1;
};

double last_of(const Series& series) {
  return series.points.empty() ? kUnknown : series.points.back().y;
}

void add_chart(std::vector<LineChart>& charts, const std::vector<const System*>& systems,
               const Chart& wanted) {
  LineChart chart;
  chart.title = "Assignment of tokens to experts";
  chart.heading = wanted.heading;
  chart.x = {.label = "steps", .low = 0};
  chart.y = {.label = wanted.label};
  for (const System* system : systems) {
    Series series = series_of(*system, wanted.number, wanted.factor);
    if (series.points.size() > 1) chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return;
  if (wanted.number != &LayerStep::balance_loss) chart.y.low = 0;

  chart.description = fmt::format("{}: ", wanted.heading);
  std::vector<std::string> ends;
  for (const Series& series : chart.series)
    ends.push_back(fmt::format("{} ends at {}", series.name, number_text(last_of(series))));
  chart.description += in_words(ends) + ".";
  charts.push_back(std::move(chart));
}

// Assignments of a run, as far as its config tells: one for each group of a micro-step.
double assignments_of(const RunRecord& run) {
  double layers = 0;
  for (const StepRecord& step : run.steps) layers += static_cast<double>(step.layers.size());
  if (!run.config) return layers;
  return layers * static_cast<double>(std::max<int64_t>(1, run.config->experts.groups) *
                                      run.config->training.micro_steps);
}

double largest_gap(const RunRecord& run) {
  double gap = 0;
  for (const StepRecord& step : run.steps) {
    for (const LayerStep& layer : step.layers) gap = std::fmax(gap, layer.relative_gap);
  }
  return gap;
}

double total_assign_share(const RunRecord& run) {
  double assign = 0;
  for (const StepRecord& step : run.steps) {
    for (const LayerStep& layer : step.layers) assign += std::fmax(0, layer.assign_seconds);
  }
  return assign / run.seconds();
}

std::string base_in_words(const System& system) {
  const RunRecord& run = system.runs.front();
  const double gap = largest_gap(run), count = assignments_of(run);
  const std::string optimal =
      gap <= kRounding
          ? fmt::format("all {:.0f} assignments are optimal{}", count,
                        gap > 0 ? fmt::format(" (largest relative gap {:.0e}, rounding)", gap) : "")
          : fmt::format(
                "of {:.0f} assignments the worst is {:.2g} of its value below "
                "the optimum",
                count, gap);
  return fmt::format(
      "{}: {}, {} of training time goes into them, and at the end {} of tokens get the expert they "
      "like best",
      system.title, optimal, percent_text(total_assign_share(run)),
      percent_text(last_of(series_of(system, &LayerStep::greedy_share, 1))));
}

std::string gate_in_words(const System& system) {
  return fmt::format(
      "{}: at the end {} of choices find no place and the balance loss is {:.3f} (1: balanced)",
      system.title, percent_text(last_of(series_of(system, &LayerStep::dropped_share, 1))),
      last_of(series_of(system, &LayerStep::balance_loss, 1)));
}

}  // namespace

void add_assignment(Page& page, const Comparison& comparison) {
  std::vector<const System*> base, gates;
  std::vector<std::string> words;
  bool has_gap = false;
  for (const System& system : comparison.systems) {
    if (system.experts == 0 || !system.is_trained() || system.runs.front().steps.empty()) continue;
    const bool is_base = system.kind == "base";
    (is_base ? base : gates).push_back(&system);
    words.push_back(is_base ? base_in_words(system) : gate_in_words(system));
    has_gap |= is_base && largest_gap(system.runs.front()) > kRounding;
  }
  if (words.empty()) return;
  page.section("assignment", "Assignment", "Assignment of tokens to experts in training");
  std::vector<LineChart> charts;
  add_chart(charts, base,
            {&LayerStep::greedy_share, "Tokens with their best expert", "percent of tokens", 100});
  if (has_gap)
    add_chart(charts, base, {&LayerStep::relative_gap, "Gap to the optimum", "relative gap"});
  add_chart(
      charts, base,
      {&LayerStep::assign_seconds, "Time of an assignment", "milliseconds a layer and step", 1e3});
  add_chart(charts, gates,
            {&LayerStep::dropped_share, "Choices without a place", "percent of choices", 100});
  add_chart(charts, gates, {&LayerStep::balance_loss, "Balance loss", "balance loss, 1: balanced"});
  std::string sentence = fmt::format("{}.", fmt::join(words, "; "));
  page.figure("assignment", charts, sentence);
}

}  // namespace ballast
