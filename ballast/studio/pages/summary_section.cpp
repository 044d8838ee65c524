// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/verdict.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

void add_tiles(Page& page, const System& system) {
  const SystemResult result = result_of(system);
  std::string tiles;
  const auto tile = [&](const char* name, const std::string& value) {
    if (value != "-")
      tiles +=
          fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, figures::markup_text(value));
  };
  const bool base = system.kind == "base";
  tile(base ? "perplexity, greedy routing" : "perplexity", perplexity_text(result.greedy.mean));
  tile("perplexity, priced routing", perplexity_text(result.priced.mean));
  tile("entropy floor of the text, as a perplexity", perplexity_text(result.floor));
  tile("tokens trained on", count_text(result.tokens));
  tile("training time", time_text(result.seconds));
  tile("tokens a second, median", count_text(result.tokens_per_second));
  tile("parameters a token meets", count_text(system.active));
  tile("parameters in all", count_text(system.parameters));
  page.html("<dl class=\"tiles\">\n" + tiles + "</dl>\n");
}

std::string seeds_text(const System& system) {
  const size_t seeds = result_of(system).best().count;
  return seeds > 1 ? fmt::format(" <small>{} seeds</small>", seeds) : "";
}

std::string progress_text(const System& system) {
  if (!system.is_trained()) return " <small>not trained yet</small>";
  const RunRecord* run = half_trained_run(system);
  if (run == nullptr) return "";
  return fmt::format(" <small>at step {} of {}</small>", run->steps_done(), run->planned_steps());
}

// Which columns a table needs: those that some system has something for.
struct Columns {
  bool change = false, routings = false, measured = false, plan = false;
};

// A number of a BASE system says how tokens were routed.
std::string labelled(const std::string& number, const std::string& routing) {
  return routing.empty() || number == "-" ? number
                                          : fmt::format("{} <small>{}</small>", number, routing);
}

// "whole split", "64 of 812 windows", "17.0k tokens".
std::string measured_briefly(const System& system) {
  for (const RunRecord& run : system.runs) {
    if (!run.validation) continue;
    if (run.validation->whole_split) return "whole split";
    if (run.validation->windows > 0 && run.validation->split_windows > 0)
      return fmt::format("{:.0f} of {:.0f} windows", run.validation->windows,
                         run.validation->split_windows);
    return count_text(run.validation->tokens) + " tokens";
  }
  return "-";
}

std::vector<std::string> row_of(const Panel& panel, const System& system, const System* reference,
                                double tokens, Columns columns) {
  const SystemResult result = result_of(system);
  const double usual = reference == nullptr ? record::kUnknown : final_perplexity(*reference);
  std::vector<std::string> row = {figures::markup_text(system.title) + seeds_text(system) +
                                  progress_text(system)};
  row.push_back(labelled(spread_text(result.best()), result.routing));
  if (columns.change)
    row.push_back(&system == reference ? "<small>reference</small>"
                                       : change_text(final_perplexity(system), usual));
  if (columns.routings)
    row.push_back(result.routing == "priced" ? labelled(spread_text(result.greedy), "greedy")
                                             : labelled(spread_text(result.priced), "priced"));
  if (columns.measured) row.push_back(measured_briefly(system));
  row.push_back(
      labelled(perplexity_text(perplexity_at(system, tokens)), routing_on_the_way(system)));
  row.push_back(count_text(result.tokens));
  row.push_back(time_text(result.seconds));
  row.push_back(count_text(result.tokens_per_second));
  row.push_back(count_text(system.active));
  row.push_back(count_text(system.parameters));
  if (columns.plan) row.push_back(count_text(panel.planned_rate(system)));
  return row;
}

void add_panel(Page& page, const Comparison& comparison, const Panel& panel) {
  // Percents would be a comparison, too.
  const System* reference =
      why_not_comparable(comparison, panel).empty() ? reference_of(comparison, panel) : nullptr;
  const double tokens = tokens_of_all(comparison, panel);
  std::set<std::string> measured;
  for (const size_t i : panel.systems) measured.insert(measured_briefly(comparison.systems[i]));
  measured.erase("-");
  const Columns columns = {
      reference != nullptr,
      std::ranges::any_of(
          panel.systems,
          [&](size_t i) { return result_of(comparison.systems[i]).priced.count > 0; }),
      measured.size() > 1, !panel.planned.tokens_per_second.empty()};
  Table table;
  table.head = {"system", "perplexity"};
  if (columns.change) table.head.push_back("against " + reference->title);
  if (columns.routings) table.head.emplace_back("other routing");
  if (columns.measured) table.head.emplace_back("measured on");
  table.head.push_back(std::isfinite(tokens) ? fmt::format("at {} tokens", count_text(tokens))
                                             : "at equal tokens");
  for (const char* name : {"tokens", "time", "tokens/s", "active", "parameters"})
    table.head.emplace_back(name);
  if (columns.plan) table.head.emplace_back("planned tokens/s");
  for (const size_t i : panel.systems)
    table.rows.push_back(row_of(panel, comparison.systems[i], reference, tokens, columns));
  if (!panel.title.empty()) page.subsection(panel.title);
  page.table(table);
  if (columns.plan)
    page.facts(fmt::format(
        "Planned: what the cost model expects of {}, of every row; each worker has the whole batch "
        "of the experiment.",
        panel.planned_cluster()));
}

std::string single_run_in_words(const System& system) {
  const SystemResult result = result_of(system);
  const RunRecord& run = system.runs.front();
  if (!run.validation || !std::isfinite(result.best().mean)) return "There was no validation yet.";
  std::string words = fmt::format("Perplexity {}, measured on {}",
                                  with_routing(perplexity_text(result.best().mean), result.routing),
                                  measured_on(*run.validation));
  if (run.validation->step != run.steps_done())
    words += fmt::format(" after step {}", run.validation->step);
  words += fmt::format("; trained on {} tokens in {}", count_text(result.tokens),
                       time_text(result.seconds));
  if (run.steps_done() < run.planned_steps())
    words += fmt::format(", to step {} of {}", run.steps_done(), run.planned_steps());
  return words + ".";
}

void add_notes(Page& page, const Comparison& comparison) {
  for (const std::string& note : comparison.notes) page.note(note);
}

}  // namespace

void add_measured_on(Page& page, const Comparison& comparison) {
  if (const std::string measured = measured_in_words(comparison); !measured.empty())
    page.facts(fmt::format("Of the last validation, on {}.", measured));
}

void add_summary(Page& page, const Comparison& comparison) {
  page.section("summary", "Summary", "Summary");
  if (comparison.is_single_run()) {
    page.lead(single_run_in_words(comparison.systems.front()));
    add_notes(page, comparison);
    add_tiles(page, comparison.systems.front());
    return;
  }
  for (const Panel& panel : comparison.panels)
    page.lead((panel.title.empty() ? "" : panel.title + ": ") + verdict(comparison, panel));
  add_notes(page, comparison);
  for (const Panel& panel : comparison.panels) add_panel(page, comparison, panel);
  if (const std::string measured = measured_in_words(comparison); !measured.empty())
    page.facts(fmt::format("Perplexities were measured on {}.", measured));
  page.facts(
      "Perplexity is that of the last validation; of a BASE system it is the "
      "better of greedy and priced routing, and says which; gates route greedily. ± is the "
      "standard deviation over seeds; systems that did not come to "
      "their end are not compared. At equal tokens: the most tokens after which all systems of a "
      "table were validated, between validations linear in loss and the logarithm of tokens; "
      "systems that train on more tokens are still in the middle of their decay of the learning "
      "rate there. Active: parameters that a token meets.");
  if (!comparison.facts.empty()) page.facts(fmt::format("{}", fmt::join(comparison.facts, " · ")));
}

}  // namespace ballast::pages
