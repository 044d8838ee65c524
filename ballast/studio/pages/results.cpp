// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

namespace ballast::pages {
namespace {

double last_perplexity(const RunRecord& run, const std::string& routing) {
  if (!run.validation) return record::kUnknown;
  const record::RoutingUse* use = run.validation->find(routing);
  // Without a name it is a dense model's, or of an older run: greedy.
  if (use == nullptr && routing == "greedy") use = run.validation->find("");
  return use == nullptr ? record::kUnknown : std::exp(use->loss);
}

template <typename Get>
Spread over_seeds(const System& system, Get get) {
  const bool has_finished = std::ranges::any_of(system.runs, &RunRecord::is_finished);
  std::vector<double> values;
  for (const RunRecord& run : system.runs) {
    if (run.is_finished() || !has_finished) values.push_back(get(run));
  }
  return spread_of(values);
}

double tokens_per_second_of(const RunRecord& run) {
  std::vector<double> rates;
  for (const record::StepRecord* step : settled_steps(run))
    rates.push_back(step->tokens_per_second);
  return median_of(rates);
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  double sum = 0, squares = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++spread.count;
  }
  if (spread.count == 0) return spread;
  const auto count = static_cast<double>(spread.count);
  spread.mean = sum / count;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - spread.mean) * (value - spread.mean);
  }
  if (spread.count > 1) spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return record::kUnknown;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

SystemResult result_of(const System& system) {
  SystemResult result;
  result.greedy =
      over_seeds(system, [](const RunRecord& run) { return last_perplexity(run, "greedy"); });
  result.priced =
      over_seeds(system, [](const RunRecord& run) { return last_perplexity(run, "priced"); });
  const bool is_base = system.kind == "base" || result.priced.count > 0;
  const bool is_priced = result.priced.mean < result.greedy.mean ||
                         (result.greedy.count == 0 && result.priced.count > 0);
  if (is_base) result.routing = is_priced ? "priced" : "greedy";
  result.floor = over_seeds(system, [](const RunRecord& run) {
                   return run.validation ? std::exp(run.validation->floor) : record::kUnknown;
                 }).mean;
  result.tokens = over_seeds(system, [](const RunRecord& run) { return run.tokens(); }).mean;
  result.seconds = over_seeds(system, [](const RunRecord& run) { return run.seconds(); }).mean;
  result.tokens_per_second = over_seeds(system, tokens_per_second_of).mean;
  result.validated_tokens = over_seeds(system, [](const RunRecord& run) {
                              return run.validation ? run.validation->tokens : record::kUnknown;
                            }).mean;
  result.whole_split =
      !system.runs.empty() && std::ranges::all_of(system.runs, [](const RunRecord& run) {
        return run.validation && run.validation->whole_split;
      });
  return result;
}

const RunRecord* half_trained_run(const System& system) {
  const RunRecord* farthest = nullptr;
  for (const RunRecord& run : system.runs) {
    if (run.is_finished()) return nullptr;
    if (run.steps_done() > (farthest == nullptr ? 0 : farthest->steps_done())) farthest = &run;
  }
  return farthest;
}

double final_perplexity(const System& system) {
  return half_trained_run(system) == nullptr ? result_of(system).best().mean : record::kUnknown;
}

std::string with_routing(const std::string& text, const std::string& routing) {
  return routing.empty() ? text : fmt::format("{} with {} routing", text, routing);
}

std::string title_with_routing(const System& system) {
  return with_routing(system.title, result_of(system).routing);
}

std::string routing_on_the_way(const System& system) {
  if (result_of(system).routing.empty()) return "";
  const bool is_known = !system.runs.empty() && system.runs.front().config;
  return is_known ? config::name_of(system.runs.front().config->experts.tested_routing())
                  : "greedy";
}

const System* lowest_of(const Comparison& comparison, const Panel& panel,
                        const std::function<bool(const System&)>& is_meant) {
  const System* lowest = nullptr;
  for (const size_t i : panel.systems) {
    const System& system = comparison.systems[i];
    const double perplexity = final_perplexity(system);
    if (!is_meant(system) || !std::isfinite(perplexity)) continue;
    if (lowest == nullptr || perplexity < final_perplexity(*lowest)) lowest = &system;
  }
  return lowest;
}

std::vector<const record::StepRecord*> settled_steps(const RunRecord& run) {
  std::set<int64_t> firsts = {1};
  for (const RunStartRecord& start : run.starts) firsts.insert(start.step + 1);
  std::vector<const record::StepRecord*> settled;
  for (const record::StepRecord& step : run.steps) {
    if (!firsts.contains(step.step)) settled.push_back(&step);
  }
  return settled;
}

double tokens_of_all(const Comparison& comparison, const Panel& panel) {
  double most = record::kUnknown;
  for (const size_t i : panel.systems) {
    for (const RunRecord& run : comparison.systems[i].runs) {
      const std::vector<record::ValidationPoint> points = record::known_points(run.validations);
      if (points.empty()) continue;
      most = std::isnan(most) ? points.back().tokens : std::min(most, points.back().tokens);
    }
  }
  return most;
}

double perplexity_at(const System& system, double tokens) {
  return over_seeds(system,
                    [&](const RunRecord& run) {
                      return std::exp(record::loss_at(run.validations, tokens));
                    })
      .mean;
}

figures::Series perplexity_series(const System& system, Against against, double unit) {
  struct AtStep {
    std::vector<double> places, perplexities;
  };
  std::map<int64_t, AtStep> steps;
  size_t runs = 0;
  for (const RunRecord& run : system.runs) {
    const std::vector<record::ValidationPoint> points = record::known_points(run.validations);
    if (!points.empty()) ++runs;
    for (const record::ValidationPoint& point : points) {
      steps[point.step].places.push_back(against == Against::kSeconds ? point.seconds
                                                                      : point.tokens);
      steps[point.step].perplexities.push_back(std::exp(point.loss));
    }
  }
  figures::Series series;
  const std::string routing = routing_on_the_way(system);
  series.name = routing.empty() ? system.title : fmt::format("{}, {}", system.title, routing);
  series.style = system.style;
  for (const auto& [step, at] : steps) {
    if (at.places.size() < runs) continue;
    const double x = spread_of(at.places).mean / unit;
    series.points.push_back({x, spread_of(at.perplexities).mean});
    if (runs > 1)
      series.band.push_back({x, *std::ranges::min_element(at.perplexities),
                             *std::ranges::max_element(at.perplexities)});
  }
  series.marks = series.points.size() <= 24 ? figures::Marks::kPoints : figures::Marks::kNone;
  return series;
}

const System* reference_of(const Comparison& comparison, const Panel& panel) {
  const auto rank = [](const System& system) {
    std::string title = system.title;
    std::ranges::transform(title, title.begin(),
                           [](unsigned char letter) { return std::tolower(letter); });
    return system.kind != "dense" ? 2 : title == "dense, equal flops" ? 0 : 1;
  };
  const System* reference = nullptr;
  for (const size_t i : panel.systems) {
    const System& system = comparison.systems[i];
    if (!system.is_trained()) continue;
    if (reference == nullptr || rank(system) < rank(*reference)) reference = &system;
  }
  return reference;
}

}  // namespace ballast::pages
