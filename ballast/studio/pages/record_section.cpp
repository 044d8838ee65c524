// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "ballast/config/config.h"
#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/ticks.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

void add_configuration(Page& page, const RunRecord& run) {
  if (run.config) {
    Table table;
    table.head = {"knob", "default", "here"};
    table.text_columns = table.head.size();
    const auto defaults = config::knob_values(config::Config());
    const auto values = config::knob_values(*run.config);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].second == defaults[i].second) continue;
      const auto code = [](const std::string& text) {
        return fmt::format("<code>{}</code>", figures::markup_text(text));
      };
      table.rows.push_back(
          {code(values[i].first), code(defaults[i].second), code(values[i].second)});
    }
    page.paragraph(fmt::format("{} of {} knobs differ from their defaults.", table.rows.size(),
                               values.size()));
    if (!table.rows.empty()) page.table(table);
  }
  if (run.config_text.empty()) return;
  page.begin_folded("all of config.toml", Page::InPrint::kLeftOut);
  page.html(fmt::format("<pre>{}</pre>\n", figures::markup_text(run.config_text)));
  page.end_folded();
}

void add_starts(Page& page, const RunRecord& run) {
  for (const RunStartRecord& start : run.starts) {
    std::string words =
        start.step == 0 ? "Started" : fmt::format("Went on after step {}", start.step);
    if (!start.time.empty()) words += " " + start.time;
    if (!start.machine.empty()) words += " on " + start.machine;
    if (start.workers > 1) words += fmt::format(", {} workers", start.workers);
    if (!start.version.empty()) words += ", ballast " + start.version;
    page.html(fmt::format("<p class=\"facts\">{}</p>\n<pre>{}</pre>\n", figures::markup_text(words),
                          figures::markup_text(start.command)));
  }
}

void add_run(Page& page, const RunRecord& run) {
  add_configuration(page, run);
  add_starts(page, run);
  if (run.sample.empty()) return;
  page.paragraph(fmt::format("What it wrote after step {}:", run.sample_step));
  page.html(fmt::format("<pre>{}</pre>\n", figures::markup_text(run.sample)));
}

}  // namespace

void add_sweep(Page& page, const Comparison& comparison) {
  std::set<double> rates;
  for (const System& system : comparison.systems) {
    for (const record::SweptRate& point : system.sweep) rates.insert(point.learning_rate);
  }
  if (rates.empty()) return;
  page.section("learning-rates", "Learning rates", "Learning rates: the sweep of each system");
  Table table;
  table.head = {"system"};
  for (const double rate : rates) table.head.push_back(fmt::format("{:.2g}", rate));
  std::vector<double> chosen;
  for (const System& system : comparison.systems) {
    if (system.sweep.empty()) continue;
    std::vector<std::string> row = {figures::markup_text(system.name)};
    for (const double rate : rates) {
      std::string cell;
      for (const record::SweptRate& point : system.sweep) {
        if (point.learning_rate != rate) continue;
        cell = point.loss ? fmt::format("{:.4f}", *point.loss) : "<small>diverged</small>";
        if (rate == system.learning_rate) cell = "<b>" + cell + "</b>";
      }
      row.push_back(cell);
    }
    chosen.push_back(system.learning_rate);
    table.rows.push_back(std::move(row));
  }
  page.paragraph(
      fmt::format("Loss at the end of a short run; the rate in bold was chosen, {}.",
                  span_text(chosen, [](double rate) { return figures::number_text(rate); })));
  page.table(table);
}

void add_records(Page& page, const Comparison& comparison) {
  page.section("record", "Configuration", "Configuration, samples and machine");
  if (comparison.is_single_run()) {
    add_run(page, comparison.systems.front().runs.front());
    return;
  }
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      page.begin_folded(fmt::format("{}: {}", system.name, run.path.string()));
      add_run(page, run);
      page.end_folded();
    }
  }
}

}  // namespace ballast::pages
