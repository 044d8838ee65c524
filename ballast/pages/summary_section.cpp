// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ballast/figures/markup.h"
#include "ballast/pages/results.h"
#include "ballast/pages/sections.h"
#include "ballast/pages/words.h"

namespace ballast {
namespace {

void add_tiles(Page& page, const System& system) {
  const SystemResult result = result_of(system);
  std::string tiles;
  const auto tile = [&](const char* name, const std::string& value) {
    if (value != "-")
      tiles += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, markup_text(value));
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
  const auto trained = std::ranges::count_if(
      system.runs, [](const RunRecord& run) { return run.validation.has_value(); });
  return trained > 1 ? fmt::format(" <small>{} seeds</small>", trained) : "";
}

// Which columns a table needs: those that some system has something for.
struct Columns {
  bool priced = false, plan = false;
};

std::vector<std::string> row_of(const System& system, const System* reference, double tokens,
                                Columns columns) {
  const SystemResult result = result_of(system);
  const double usual = reference == nullptr ? kUnknown : result_of(*reference).greedy.mean;
  std::vector<std::string> row = {markup_text(system.title) + seeds_text(system)};
  if (!system.is_trained()) row.front() += " <small>not trained yet</small>";
  row.push_back(spread_text(result.greedy));
  row.push_back(&system == reference ? "<small>reference</small>"
                                     : change_text(result.greedy.mean, usual));
  if (columns.priced) row.push_back(spread_text(result.priced));
  row.push_back(perplexity_text(perplexity_at(system, tokens)));
  row.push_back(count_text(result.tokens));
  row.push_back(time_text(result.seconds));
  row.push_back(count_text(result.tokens_per_second));
  row.push_back(count_text(system.active));
  row.push_back(count_text(system.parameters));
  if (columns.plan) row.push_back(count_text(system.planned.tokens_per_second));
  return row;
}

std::string plan_of(const Comparison& comparison, const Panel& panel) {
  for (const size_t i : panel.systems) {
    if (std::isfinite(comparison.systems[i].planned.tokens_per_second))
      return comparison.systems[i].planned.cluster;
  }
  return "";
}

void add_panel(Page& page, const Comparison& comparison, const Panel& panel) {
  const System* reference = reference_of(comparison, panel);
  const double tokens = tokens_of_all(comparison, panel);
  const std::string plan = plan_of(comparison, panel);
  const Columns columns = {
      std::ranges::any_of(
          panel.systems,
          [&](size_t i) { return result_of(comparison.systems[i]).priced.count > 0; }),
      !plan.empty()};
  Table table;
  table.head = {"system", "perplexity", reference == nullptr ? "" : "against " + reference->title};
  if (columns.priced) table.head.emplace_back("priced routing");
  table.head.push_back(std::isfinite(tokens) ? fmt::format("at {} tokens", count_text(tokens))
                                             : "at equal tokens");
  for (const char* name : {"tokens", "time", "tokens/s", "active", "parameters"})
    table.head.emplace_back(name);
  if (columns.plan) table.head.emplace_back("planned tokens/s");
  for (const size_t i : panel.systems)
    table.rows.push_back(row_of(comparison.systems[i], reference, tokens, columns));
  if (!panel.title.empty()) page.subsection(panel.title);
  page.table(table);
  if (columns.plan)
    page.html(fmt::format("<p class=\"facts\">Planned: what the cost model expects of {}.</p>\n",
                          markup_text(plan)));
}

// What a panel shows, such as "BASE x1 has the lowest perplexity, 23.41, 4.9 % below dense".
std::string lowest_in_words(const Comparison& comparison, const Panel& panel) {
  const System *reference = reference_of(comparison, panel), *best = nullptr;
  double lowest = kUnknown;
  for (const size_t i : panel.systems) {
    const double perplexity = result_of(comparison.systems[i]).greedy.mean;
    if (!std::isfinite(perplexity) || !(perplexity < lowest || std::isnan(lowest))) continue;
    lowest = perplexity;
    best = &comparison.systems[i];
  }
  const std::string where = panel.title.empty() ? "" : panel.title + ": ";
  if (best == nullptr) return where + "no system was validated yet";
  if (best == reference)
    return fmt::format("{}{} has the lowest perplexity, {}", where, best->title,
                       perplexity_text(lowest));
  const double usual = result_of(*reference).greedy.mean;
  return fmt::format("{}{} has the lowest perplexity, {}, {:.1f} % below {} ({})", where,
                     best->title, perplexity_text(lowest), 100 * (1 - lowest / usual),
                     reference->title, perplexity_text(usual));
}

}  // namespace

void add_summary(Page& page, const Comparison& comparison) {
  page.section("summary", "Summary", "Summary");
  for (const std::string& note : comparison.notes) page.note(note);
  if (comparison.is_single_run()) {
    add_tiles(page, comparison.systems.front());
    return;
  }
  std::vector<std::string> sentences;
  for (const Panel& panel : comparison.panels)
    sentences.push_back(lowest_in_words(comparison, panel));
  page.paragraph(fmt::format("{}.", fmt::join(sentences, "; ")));
  for (const Panel& panel : comparison.panels) add_panel(page, comparison, panel);
  page.html(
      "<p class=\"facts\">Perplexity is that of the last validation, with greedy routing where "
      "there "
      "are experts; ± is the standard deviation over seeds. At equal tokens: the most tokens after "
      "which all systems of a table were validated, between validations linear in loss and the "
      "logarithm of tokens. Active: parameters that a token meets.</p>\n");
  if (!comparison.facts.empty())
    page.html(fmt::format("<p class=\"facts\">{}</p>\n",
                          markup_text(fmt::format("{}", fmt::join(comparison.facts, " · ")))));
}

}  // namespace ballast
