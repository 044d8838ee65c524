// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ballast/studio/figures/palette.h"
#include "ballast/studio/pages/balance.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

struct Curve {
  std::string name, role;  // the role is PaperCurve's of_curve, or "priced"
  std::vector<double> shares;
  size_t style = 0, dashes = 0;   // colour and marks are the system's, dashes the role's
  size_t layers = 0, unused = 0;  // unused: experts of all layers without a token
};

std::vector<Curve> curves_of(const SparseSystem& sparse) {
  std::vector<Curve> curves;
  const std::string& title = sparse.system->title;
  const auto add = [&](const std::string& name, const std::string& role, const char* routing,
                       Choice choice, size_t dashes) {
    const record::RoutingUse* use = sparse.validation->find(routing);
    if (use == nullptr) return;
    std::vector<double> shares = balance_curve(*use, choice);
    if (shares.empty()) return;
    Curve curve = {name, role, std::move(shares), sparse.system->style, dashes};
    for (const record::LayerUse& layer : use->layers) {
      const std::vector<double>& loads =
          choice == Choice::kFirst ? layer.loads : layer.second_loads;
      if (sorted_shares(loads).size() != curve.shares.size()) continue;  // not in the mean
      ++curve.layers;
      curve.unused +=
          static_cast<size_t>(std::ranges::count_if(loads, [](double load) { return load <= 0; }));
    }
    curves.push_back(std::move(curve));
  };
  if (sparse.system->kind == "switch") {
    add(title, "switch", "greedy", Choice::kFirst, figures::kThrough);
  } else if (sparse.system->kind == "sparsely_gated") {
    add(title + ", first expert", "first", "greedy", Choice::kFirst, figures::kThrough);
    add(title + ", second expert", "second", "greedy", Choice::kSecond, figures::kDashed);
  } else {
    add("BASE, training", "training", "balanced", Choice::kFirst, figures::kDashDotted);
    add(title + ", greedy", "greedy", "greedy", Choice::kFirst, figures::kThrough);
    add(title + ", priced", "priced", "priced", Choice::kFirst, figures::kDashed);
  }
  return curves;
}

// Balanced by an assignment, as the paper's BASE is in training.
bool is_even(const Curve& curve) { return curve.role == "training" && curve.shares.front() < 1.05; }

figures::Series series_of(const std::vector<double>& shares) {
  figures::Series series;
  for (size_t i = 0; i < shares.size(); ++i)
    series.points.push_back(
        {100 * (static_cast<double>(i) + 0.5) / static_cast<double>(shares.size()), shares[i]});
  return series;
}

// The paper's curves are thin and dotted, in the colours of ours that they are to be compared with;
// those that have none have colours of their own, as long as there are any.
void add_paper(figures::LineChart& chart, const std::vector<Curve>& ours) {
  std::set<std::string_view> taken;
  for (const Curve& curve : ours) taken.insert(figures::line_colour(curve.style));
  size_t next = 0;
  for (const PaperCurve& paper : paper_balance()) {
    const auto place = std::ranges::find(ours, paper.of_curve, &Curve::role);
    if (place != ours.end() && is_even(*place)) continue;  // the same line
    figures::Series series = series_of(paper.shares);
    series.name = "paper: " + paper.name;
    series.weight = figures::Weight::kThin;
    series.dashes = figures::kDotted;
    if (place != ours.end()) {
      series.style = place->style;
    } else {
      for (size_t tries = 0; tries < 7 && taken.contains(figures::line_colour(next)); ++tries)
        ++next;
      series.style = next++;
    }
    chart.series.push_back(std::move(series));
  }
}

// "BASE, testing 5.18, ..." of the paper's curves that are not balanced by construction.
std::string paper_in_words() {
  std::vector<std::string> words;
  for (const PaperCurve& paper : paper_balance()) {
    if (paper.of_curve != "training")
      words.push_back(fmt::format("{} {:.2f}", paper.name, paper.shares.front()));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string sentence_of(const std::vector<Curve>& curves) {
  std::vector<std::string> words;
  for (const Curve& curve : curves) {
    std::vector<std::string> more;
    if (curve.layers > 1 && curve.role != "training")
      more.push_back(fmt::format("mean over {} layers", curve.layers));
    if (curve.unused > 0)
      more.push_back(plural(static_cast<double>(curve.unused), "expert") + " without a token");
    words.push_back(fmt::format("{} {:.2f}", curve.name, curve.shares.front()));
    if (!more.empty()) words.back() += fmt::format(" ({})", fmt::join(more, "; "));
  }
  return fmt::format(
      "The busiest expert's load in fair shares, 1 being perfect balance, is: {}; in the paper "
      "(thin dotted lines, {} experts): {}.",
      fmt::join(words, ", "), paper_balance().front().shares.size(), paper_in_words());
}

figures::LineChart chart_of(const std::vector<Curve>& curves, const std::string& heading) {
  figures::LineChart chart;
  chart.title = "Share of tokens of each expert";
  chart.heading = heading;
  chart.description = sentence_of(curves);
  chart.x = {.label = "experts, sorted by use, percent of all", .low = 0, .high = 100};
  chart.y = {.label = "tokens of an expert in fair shares, log scale",
             .scale = figures::Scale::kLog};
  double lowest = 0.05, highest = 12;
  for (size_t i = 0; i < curves.size(); ++i) {
    figures::Series series = series_of(curves[i].shares);
    series.name = curves[i].name + (is_even(curves[i]) ? ", as in the paper" : "");
    series.style = curves[i].style;
    series.dashes = curves[i].dashes;
    series.marks = series.points.size() <= 32 && !is_even(curves[i]) ? figures::Marks::kPoints
                                                                     : figures::Marks::kNone;
    highest = std::max(highest, 1.1 * curves[i].shares.front());
    for (const double share : curves[i].shares) {
      if (share > 0) lowest = std::clamp(0.8 * share, 0.005, lowest);
    }
    chart.series.push_back(std::move(series));
  }
  chart.y.low = lowest;
  chart.y.high = highest;
  add_paper(chart, curves);
  return chart;
}

}  // namespace

std::vector<SparseSystem> sparse_systems(const Comparison& comparison) {
  std::vector<SparseSystem> sparse;
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      if (!run.validation || run.validation->main() == nullptr ||
          run.validation->main()->layers.empty())
        continue;
      sparse.push_back({&system, &*run.validation});
      break;
    }
  }
  std::ranges::stable_sort(sparse, {}, [](const SparseSystem& one) {
    return std::make_pair(one.system->kind != "base", one.validation->main()->loss);
  });
  return sparse;
}

void add_balance(Page& page, const Comparison& comparison) {
  if (std::ranges::all_of(comparison.systems,
                          [](const System& system) { return system.experts == 0; }))
    return;
  page.section("balance", "Balance", "Expert balance: how evenly tokens are spread");
  const std::vector<SparseSystem> sparse = sparse_systems(comparison);
  if (sparse.empty()) {
    page.note(
        "There was no validation of a sparse model yet: how it uses its experts is not known.");
    return;
  }
  add_measured_on(page, comparison);
  size_t figures = 0;
  for (const Panel& panel : comparison.panels) {
    std::vector<Curve> curves;
    bool has_training = false;
    for (const SparseSystem& one : sparse) {
      if (std::ranges::none_of(panel.systems,
                               [&](size_t i) { return &comparison.systems[i] == one.system; }))
        continue;
      for (Curve& curve : curves_of(one)) {
        // Balanced is balanced: one line tells it for all.
        if (curve.role == "training" && has_training) continue;
        has_training |= curve.role == "training";
        curves.push_back(std::move(curve));
      }
    }
    if (curves.empty()) continue;
    const figures::LineChart chart =
        chart_of(curves, comparison.panels.size() > 1 ? panel.title : "");
    page.figure(figures++ == 0 ? "expert_balance" : fmt::format("expert_balance_{}", figures),
                chart, chart.description);
  }
}

}  // namespace ballast::pages
