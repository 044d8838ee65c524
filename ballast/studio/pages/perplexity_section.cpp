// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ballast/studio/figures/palette.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/verdict.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

// Of the x axis: what lies higher before may be left out. Of runs side by side more is, so that
// there is room for the differences at their ends.
constexpr double kEarlyAlone = 0.15, kEarly = 0.3;
constexpr double kLogFrom = 4;  // ratio of highest and lowest from which a scale is logarithmic
constexpr size_t kSmoothPoints = 200;

// Over how many steps a run's training perplexity is smoothed.
double smoothed_steps(const RunRecord& run) {
  return std::clamp(static_cast<double>(run.steps.size()) / 40, 1.0, 50.0);
}

// Training perplexity of a run, smoothed, behind its validations.
figures::Series training_series(const RunRecord& run, size_t style, Against against, double unit) {
  figures::Series series;
  series.name = "training, smoothed";
  series.style = style;
  series.dashes = figures::kDotted;
  series.weight = figures::Weight::kThin;
  const double keep = 1 - 1 / smoothed_steps(run);
  double mean = record::kUnknown;
  const size_t every = run.steps.size() / kSmoothPoints + 1;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const record::StepRecord& step = run.steps[i];
    if (!std::isfinite(step.loss)) continue;
    mean = std::isnan(mean) ? step.loss : keep * mean + (1 - keep) * step.loss;
    if (i % every == 0 || i + 1 == run.steps.size())
      series.points.push_back(
          {(against == Against::kSeconds ? step.seconds : step.tokens) / unit, std::exp(mean)});
  }
  return series;
}

double end_of(const figures::LineChart& chart) {
  double end = 0;
  for (const figures::Series& series : chart.series) {
    for (const figures::Point& point : series.points) end = std::max(end, point.x);
  }
  return end;
}

// The perplexities of all charts: the lowest, the highest, and the highest after their beginnings.
struct Extent {
  double low = record::kUnknown, high = record::kUnknown, late = record::kUnknown;
};

Extent extent_of(const std::vector<figures::LineChart>& charts, double early) {
  Extent extent;
  for (const figures::LineChart& chart : charts) {
    const double end = end_of(chart);
    for (const figures::Series& series : chart.series) {
      for (const figures::Point& point : series.points) {
        if (!std::isfinite(point.y)) continue;
        extent.low = std::fmin(extent.low, point.y);
        extent.high = std::fmax(extent.high, point.y);
        if (point.x >= early * end) extent.late = std::fmax(extent.late, point.y);
      }
      for (const figures::Band& band : series.band)  // no seed lies outside of the figure
        extent.low = std::fmin(extent.low, band.low);
    }
  }
  return extent;
}

// Where a chart's first line comes below `high`; 0 where that is near its beginning.
double start_of(const figures::LineChart& chart, double high) {
  double start = record::kUnknown;
  for (const figures::Series& series : chart.series) {
    const auto within = std::ranges::find_if(
        series.points, [&](const figures::Point& point) { return point.y <= high; });
    if (within == series.points.end()) continue;
    double x = within->x;
    if (within != series.points.begin()) {
      const figures::Point& before = *(within - 1);
      x = before.x + (x - before.x) * (before.y - high) / (before.y - within->y);
    }
    start = std::fmin(start, x);
  }
  return start > 0.03 * end_of(chart) ? start : 0;
}

// Of all charts alike, so that they can be compared: the steep fall at the beginning is left out if
// it would leave no room for what follows. Returns the perplexity from which; NaN: nothing is.
double choose_axes(std::vector<figures::LineChart>& charts, double floor, bool is_alone) {
  Extent extent = extent_of(charts, is_alone ? kEarlyAlone : kEarly);
  if (std::isnan(extent.low)) return record::kUnknown;
  double cut = record::kUnknown;
  if (extent.high > 1.3 * extent.late) cut = extent.high = 1.05 * extent.late;
  double low = extent.low;
  if (std::isfinite(floor) && floor > 0.6 * low) low = std::min(low, floor);
  const double high = extent.high;
  const bool is_log = high / low > kLogFrom;
  const double room = 0.05;
  for (figures::LineChart& chart : charts) {
    chart.x.low = std::isnan(cut) ? 0 : start_of(chart, cut);
    chart.y.scale = is_log ? figures::Scale::kLog : figures::Scale::kLinear;
    if (is_log) chart.y.label += ", log scale";
    chart.y.low = is_log ? low / std::pow(high / low, room) : low - room * (high - low);
    chart.y.high = is_log ? high * std::pow(high / low, room) : high + room * (high - low);
    if (!(*chart.y.high > *chart.y.low)) chart.y.low = chart.y.high = std::nullopt;
    if (std::isfinite(floor) && floor >= low)
      chart.levels.push_back({floor, "entropy floor of the text"});
  }
  return cut;
}

// What the axes leave out, in words.
std::string left_out(const std::vector<figures::LineChart>& charts, double cut, Against against,
                     double unit) {
  if (std::isnan(cut)) return "";
  if (charts.size() > 1)
    return fmt::format(" Each chart starts where its first line comes below {}.",
                       perplexity_text(cut));
  const double start = *charts.front().x.low;
  if (start == 0)
    return fmt::format(" What lies above {} at the beginning is left out.", perplexity_text(cut));
  return fmt::format(
      " Left out: the first {}, with perplexities above {}.",
      against == Against::kSeconds ? time_text(start * unit) : count_text(start) + " tokens",
      perplexity_text(cut));
}

double longest_time(const Comparison& comparison) {
  double longest = 0;
  for (const System& system : comparison.systems) {
    const double seconds = result_of(system).seconds;
    if (seconds > longest) longest = seconds;
  }
  return longest;
}

// Of a panel all systems that can be compared, of several panels the reference, the lowest, and the
// lowest of sparse ones.
std::vector<const System*> systems_to_name(const Comparison& comparison, const Panel& panel) {
  const bool is_one_of_many = comparison.panels.size() > 1;
  const System* named[] = {
      reference_of(comparison, panel),
      lowest_of(comparison, panel, [](const System&) { return true; }),
      lowest_of(comparison, panel, [](const System& system) { return system.experts > 0; })};
  std::vector<const System*> systems;
  for (const size_t i : panel.systems) {
    const System& system = comparison.systems[i];
    if (!std::isfinite(final_perplexity(system))) continue;
    if (!is_one_of_many || std::ranges::find(named, &system) != std::end(named))
      systems.push_back(&system);
  }
  return systems;
}

// "dense 24.61 and BASE x1 with priced routing 23.41 (-4.9 %)".
std::string ends_in_words(const Comparison& comparison, const Panel& panel) {
  const System* reference =
      why_not_comparable(comparison, panel).empty() ? reference_of(comparison, panel) : nullptr;
  const double usual = reference == nullptr ? record::kUnknown : final_perplexity(*reference);
  std::vector<std::string> words;
  for (const System* system : systems_to_name(comparison, panel)) {
    const double perplexity = final_perplexity(*system);
    words.push_back(fmt::format("{} {}", title_with_routing(*system), perplexity_text(perplexity)));
    if (system != reference && std::isfinite(usual))
      words.back() += fmt::format(" ({})", change_text(perplexity, usual));
  }
  return words.empty() ? "not known yet" : in_words(words);
}

// Without differences in percent: systems are at different places of their schedules there.
std::string at_tokens_in_words(const Comparison& comparison, const Panel& panel, double tokens) {
  std::vector<std::string> words;
  for (const System* system : systems_to_name(comparison, panel)) {
    const double perplexity = perplexity_at(*system, tokens);
    if (std::isfinite(perplexity))
      words.push_back(fmt::format("{} {}", with_routing(system->title, routing_on_the_way(*system)),
                                  perplexity_text(perplexity)));
  }
  return words.empty() ? "not known yet" : in_words(words);
}

std::string first_to_last(const System& system) {
  const figures::Series series = perplexity_series(system, Against::kTokens, 1);
  if (series.points.empty()) return "";
  const figures::Point &first = series.points.front(), &last = series.points.back();
  const std::string what = with_routing("Validation perplexity", routing_on_the_way(system));
  if (series.points.size() == 1)
    return fmt::format("{} is {} after {} tokens", what, perplexity_text(last.y),
                       count_text(last.x));
  return fmt::format("{} goes from {} after {} tokens to {} after {}", what,
                     perplexity_text(first.y), count_text(first.x), perplexity_text(last.y),
                     count_text(last.x));
}

std::string sentence_of(const Comparison& comparison, Against against) {
  if (comparison.is_single_run()) {
    const System& system = comparison.systems.front();
    const SystemResult result = result_of(system);
    if (against == Against::kSeconds)
      return fmt::format("After {} of training the validation perplexity is {}.",
                         time_text(result.seconds),
                         with_routing(perplexity_text(result.best().mean), result.routing));
    std::string sentence = first_to_last(system);
    if (std::isfinite(result.floor))
      sentence +=
          fmt::format("; the text's own entropy floor is at {}", perplexity_text(result.floor));
    return sentence + ".";
  }
  const bool by_time = against == Against::kSeconds;
  std::vector<std::string> parts;
  for (const Panel& panel : comparison.panels) {
    const double tokens = tokens_of_all(comparison, panel);
    const std::string when =
        by_time ? "at the end" : fmt::format("after {} tokens", count_text(tokens));
    const std::string ends =
        by_time ? ends_in_words(comparison, panel) : at_tokens_in_words(comparison, panel, tokens);
    parts.push_back(comparison.panels.size() > 1
                        ? fmt::format("with {} {} it is {}", panel.title, when, ends)
                        : fmt::format("{} it is {}", when, ends));
  }
  return fmt::format(
      "Perplexity{}: {}.{}",
      comparison.panels.size() > 1 ? ", the lowest and the lowest of sparse systems beside the "
                                     "reference"
                                   : "",
      fmt::join(parts, "; "),
      by_time ? ""
              : " Systems that train on more tokens are still in the middle of their decay of "
                "the learning rate there.");
}

// What validations along the way and at the end were measured on.
std::string validations_in_words(const Comparison& comparison) {
  std::vector<double> before, last;
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      for (const record::ValidationPoint& point : run.validations)
        (&point == &run.validations.back() ? last : before).push_back(point.valid_tokens);
    }
  }
  const std::string early = span_text(before, count_text), late = span_text(last, count_text),
                    measured = measured_in_words(comparison);
  if (late == "-" || measured.empty()) return "";
  if (early == "-" || early == late) return fmt::format(" Validation is on {}.", measured);
  return fmt::format(" Validation is on {} tokens along the way, at the end on {}.", early,
                     measured);
}

// Which line is which.
std::string lines_in_words(const Comparison& comparison) {
  const std::string validations = validations_in_words(comparison);
  if (!comparison.is_single_run()) return validations;
  return fmt::format(
      " The line with marks is validation, the thin dotted one training on its own text, smoothed "
      "over about {}.{}",
      plural(std::round(smoothed_steps(comparison.systems.front().runs.front())), "step"),
      validations);
}

void add_charts(Page& page, const Comparison& comparison, Against against) {
  const bool by_time = against == Against::kSeconds;
  const TimeUnit time = time_unit(longest_time(comparison));
  const double unit = by_time ? time.seconds : 1;
  double floor = record::kUnknown;
  std::vector<figures::LineChart> charts;
  for (const Panel& panel : comparison.panels) {
    figures::LineChart chart;
    chart.title = by_time ? "Validation perplexity against training time"
                          : "Validation perplexity against tokens";
    chart.heading = comparison.panels.size() > 1 ? panel.title : "";
    chart.x.label = by_time ? "training time, " + time.name : "tokens trained on";
    chart.y.label = comparison.is_single_run() ? "perplexity" : "validation perplexity";
    for (const size_t i : panel.systems) {
      const System& system = comparison.systems[i];
      figures::Series series = perplexity_series(system, against, unit);
      if (series.points.empty()) continue;
      if (comparison.is_single_run()) {
        series.name = "validation";
        chart.series.push_back(
            training_series(system.runs.front(), system.style + 1, against, unit));
      }
      floor = result_of(system).floor;
      chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  }
  if (charts.empty()) {
    page.note("There was no validation yet: a perplexity will stand here after the first.");
    return;
  }
  const double cut = choose_axes(charts, floor, comparison.is_single_run());
  const std::string sentence =
      fmt::format("{}{}{}", sentence_of(comparison, against), lines_in_words(comparison),
                  left_out(charts, cut, against, unit));
  for (figures::LineChart& chart : charts) chart.description = sentence;
  page.figure(by_time ? "perplexity_time" : "perplexity_tokens", charts, sentence);
}

}  // namespace

void add_perplexity(Page& page, const Comparison& comparison) {
  page.section("perplexity-time", "Perplexity by time", "Perplexity against training time");
  add_charts(page, comparison, Against::kSeconds);
  page.section("perplexity-tokens", "Perplexity by tokens", "Perplexity against tokens");
  add_charts(page, comparison, Against::kTokens);
}

}  // namespace ballast::pages
