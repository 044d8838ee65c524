// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

using record::LayerStep;

constexpr size_t kBuckets = 120;
constexpr size_t kNamedSystems = 3;
// Exact results have gaps up to 1e-9 of the scores' size, and scores may differ by a thousandth of
// that: a relative gap below says nothing.
constexpr double kRounding = 1e-6;

using Number = double LayerStep::*;

// The mean over layers of a number in each step, averaged over steps one after another.
figures::Series series_of(const System& system, Number number, double factor) {
  figures::Series series;
  series.name = system.name;
  const std::vector<record::StepRecord>& steps = system.runs.front().steps;
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

// The mean of a layer's number over the last steps, as many as the last point of a chart has.
double end_of(const RunRecord& run, size_t layer, Number number) {
  const size_t length = (run.steps.size() + kBuckets - 1) / kBuckets;
  std::vector<double> values;
  for (size_t i = run.steps.size() - length; i < run.steps.size(); ++i) {
    if (layer < run.steps[i].layers.size()) values.push_back(run.steps[i].layers[layer].*number);
  }
  return spread_of(values).mean;
}

// What tells in each layer whether its router has learned to tell tokens apart.
void add_layers(Page& page, const std::vector<const System*>& systems) {
  Table table;
  table.head = {"system", "layer", "tokens with their best expert", "mean gate",
                "scores' variance in one direction"};
  table.text_columns = 2;
  for (const System* system : systems) {
    const RunRecord& run = system->runs.front();
    const record::RoutingUse* routing = run.validation ? run.validation->main() : nullptr;
    for (size_t i = 0; i < run.steps.back().layers.size(); ++i) {
      const bool is_known = routing != nullptr && i < routing->layers.size();
      const double gate = end_of(run, i, &LayerStep::mean_gate);
      table.rows.push_back(
          {figures::markup_text(system->name),
           is_known ? figures::markup_text(routing->layers[i].name)
                    : fmt::format("layer {}", run.steps.back().layers[i].layer),
           percent_text(end_of(run, i, &LayerStep::greedy_share)),
           std::isfinite(gate) ? fmt::format("{:.3f}", gate) : "-",
           percent_text(is_known ? routing->layers[i].first_direction_share : record::kUnknown)});
    }
  }
  if (!table.rows.empty()) page.table(table);
}

struct Chart {
  Number number;
  const char *heading, *label;
  double factor = 1;
};

double last_of(const figures::Series& series) {
  return series.points.empty() ? record::kUnknown : series.points.back().y;
}

void add_chart(std::vector<figures::LineChart>& charts, const std::vector<const System*>& systems,
               const Chart& wanted) {
  figures::LineChart chart;
  chart.title = "Assignment of tokens to experts";
  chart.heading = wanted.heading;
  chart.x = {.label = "steps", .low = 0};
  chart.y = {.label = wanted.label};
  for (const System* system : systems) {
    figures::Series series = series_of(*system, wanted.number, wanted.factor);
    series.style = system->style;
    series.dashes = static_cast<size_t>(
        std::ranges::count(chart.series, system->style, &figures::Series::style));
    if (series.points.size() > 1) chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return;
  if (wanted.number != &LayerStep::balance_loss) chart.y.low = 0;

  chart.description = fmt::format("{}: ", wanted.heading);
  std::vector<std::string> ends;
  for (const figures::Series& series : chart.series)
    ends.push_back(
        fmt::format("{} ends at {}", series.name, figures::number_text(last_of(series))));
  chart.description += in_words(ends) + ".";
  charts.push_back(std::move(chart));
}

// Assignments of a run, as far as its config tells: one for each group of a micro-step.
double assignments_of(const RunRecord& run) {
  double layers = 0;
  for (const record::StepRecord& step : run.steps)
    layers += static_cast<double>(step.layers.size());
  if (!run.config) return layers;
  return layers * static_cast<double>(std::max<int64_t>(1, run.config->experts.groups) *
                                      run.config->training.micro_steps);
}

double largest_of(const RunRecord& run, Number number) {
  double largest = 0;
  for (const record::StepRecord& step : run.steps) {
    for (const LayerStep& layer : step.layers) largest = std::fmax(largest, layer.*number);
  }
  return largest;
}

std::string solver_of(const System& system) {
  const std::optional<config::Config>& config = system.runs.front().config;
  return config::name_of(config ? config->experts.solver : config::ExpertsConfig().solver);
}

// What gaps of a run are parts of. Those of earlier programs knew no gap that is allowed.
const char* whole_of(const RunRecord& run) {
  return run.config_text.find("assignment_gap") == std::string::npos
             ? "its value"
             : "what the optimum has above a blind spread";
}

// How often layers ended a step beyond the gap that their run allows.
size_t steps_beyond(const RunRecord& run, double allowed) {
  size_t beyond = 0;
  for (const record::StepRecord& step : run.steps)
    beyond += static_cast<size_t>(std::ranges::count_if(step.layers, [&](const LayerStep& layer) {
      return layer.relative_gap > allowed + kRounding;
    }));
  return beyond;
}

std::string allowed_in_words(const std::vector<const System*>& systems) {
  double allowed = 0;
  size_t beyond = 0;
  for (const System* system : systems) {
    const RunRecord& run = system->runs.front();
    const double own = run.config ? run.config->experts.assignment_gap : 0;
    allowed = std::fmax(allowed, own);
    beyond += steps_beyond(run, own);
  }
  if (allowed == 0) return "";
  return beyond == 0 ? fmt::format(" ({:.2g} is allowed)", allowed)
                     : fmt::format(" ({:.2g} is allowed, and exceeded in {} steps of a layer)",
                                   allowed, beyond);
}

// What is known of how good assignments are: the exact solver certifies them, others do not.
std::string quality_in_words(const std::vector<const System*>& systems) {
  double count = 0, gap = 0, bound = 0;
  const char* const whole = whole_of(systems.front()->runs.front());
  for (const System* system : systems) {
    const RunRecord& run = system->runs.front();
    count += assignments_of(run);
    gap = std::fmax(gap, largest_of(run, &LayerStep::relative_gap));
    bound = std::fmax(bound, largest_of(run, &LayerStep::shortfall_bound));
  }
  if (const std::string solver = solver_of(*systems.front()); solver != "exact")
    return fmt::format(
        "by {} {:.0f} assignments, of which none is proved to be optimal: by its own prices the "
        "worst may lack up to {:.2g} of {}",
        solver, count, bound, whole);
  if (gap > kRounding)
    return fmt::format(
        "of {:.0f} assignments the worst is at most {:.2g} of {} below the optimum{}", count, gap,
        whole, allowed_in_words(systems));
  return fmt::format("all {:.0f} assignments are optimal{}", count,
                     gap > 0 ? fmt::format(" (largest relative gap {:.0e}, rounding)", gap) : "");
}

// The part of training time that assignments take; NaN: not known.
double assign_share(const System& system) {
  if (system.alone) {
    const auto part = system.alone->parts.find("assignment");
    return part == system.alone->parts.end() ? record::kUnknown
                                             : part->second / system.alone->seconds;
  }
  const RunRecord& run = system.runs.front();
  double assign = record::kUnknown;
  for (const record::StepRecord& step : run.steps) {
    for (const LayerStep& layer : step.layers) {
      if (layer.assign_seconds >= 0) assign = std::fmax(0, assign) + layer.assign_seconds;
    }
  }
  return assign / run.seconds();
}

// Their names, or of many their number.
std::string names_of(const std::vector<const System*>& systems, const std::string& kind) {
  if (systems.size() > kNamedSystems) return fmt::format("The {} {}", systems.size(), kind);
  std::vector<std::string> names;
  for (const System* system : systems) names.push_back(system->name);
  return in_words(names);
}

template <typename Get>
std::vector<double> of_each(const std::vector<const System*>& systems, Get get) {
  std::vector<double> values;
  for (const System* system : systems) values.push_back(get(*system));
  return values;
}

std::string base_in_words(const std::vector<const System*>& systems) {
  const std::vector<double> shares = of_each(systems, assign_share);
  const bool is_known = std::ranges::any_of(shares, [](double x) { return std::isfinite(x); });
  return fmt::format(
      "{}: {}{}, and at the end {} of tokens get the expert they like best",
      names_of(systems, "BASE systems"), quality_in_words(systems),
      is_known ? fmt::format(", they take {} of training time", span_text(shares, percent_text))
               : "",
      span_text(of_each(systems,
                        [](const System& one) {
                          return last_of(series_of(one, &LayerStep::greedy_share, 1));
                        }),
                percent_text));
}

std::string gates_in_words(const std::vector<const System*>& systems) {
  return fmt::format(
      "{}: at the end {} of choices find no place, and the balance loss, 1 where experts are used "
      "alike, is {}",
      names_of(systems, "systems with gates"),
      span_text(of_each(systems,
                        [](const System& one) {
                          return last_of(series_of(one, &LayerStep::dropped_share, 1));
                        }),
                percent_text),
      span_text(of_each(systems,
                        [](const System& one) {
                          return last_of(series_of(one, &LayerStep::balance_loss, 1));
                        }),
                [](double loss) { return fmt::format("{:.3f}", loss); }));
}

}  // namespace

void add_assignment(Page& page, const Comparison& comparison) {
  std::vector<const System*> base, gates;
  std::map<std::string, std::vector<const System*>> by_solver;
  bool has_gap = false;
  for (const System& system : comparison.systems) {
    if (system.experts == 0 || !system.is_trained() || system.runs.front().steps.empty()) continue;
    (system.kind == "base" ? base : gates).push_back(&system);
    if (system.kind == "base") by_solver[solver_of(system)].push_back(&system);
    has_gap |= largest_of(system.runs.front(), &LayerStep::relative_gap) > kRounding;
  }
  if (base.empty() && gates.empty()) return;
  page.section("assignment", "Assignment", "Assignment of tokens to experts in training");
  std::vector<figures::LineChart> charts;
  add_chart(charts, base,
            {&LayerStep::greedy_share, "Tokens with their best expert", "percent of tokens", 100});
  std::vector<const System*> all = base;
  all.insert(all.end(), gates.begin(), gates.end());
  add_chart(charts, all, {&LayerStep::mean_gate, "Mean gate", "weight of a token's first expert"});
  if (has_gap)
    add_chart(charts, base, {&LayerStep::relative_gap, "Gap to the optimum", "percent", 100});
  add_chart(
      charts, base,
      {&LayerStep::shortfall_bound, "What an inexact solver may lack", "percent, at most", 100});
  add_chart(
      charts, base,
      {&LayerStep::assign_seconds, "Time of an assignment", "milliseconds a layer and step", 1e3});
  add_chart(charts, gates,
            {&LayerStep::dropped_share, "Choices without a place", "percent of choices", 100});
  add_chart(charts, gates, {&LayerStep::balance_loss, "Balance loss", "balance loss, 1: balanced"});
  std::vector<std::string> words;
  for (const auto& [solver, systems] : by_solver) words.push_back(base_in_words(systems));
  if (!gates.empty()) words.push_back(gates_in_words(gates));
  const std::string sentence = fmt::format("{}.", fmt::join(words, "; "));
  if (charts.empty())
    page.note(sentence);
  else
    page.figure("assignment", charts, sentence);
  add_layers(page, all);
}

}  // namespace ballast::pages
