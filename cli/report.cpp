// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/verdict.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/report_page.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
The page holds all it needs: it opens without a network, on a phone and in print. Beside it, in
figures/, the same figures lie as SVG, and as PNG where the program rsvg-convert is installed
(Debian: librsvg2-bin). A run that goes on can be reported as well; the page says what is missing.

Examples
  ballast report runs/first_run                          writes runs/first_run/report/index.html
  ballast report experiments/dense                       all systems of an experiment
  ballast report runs/dense runs/base --out comparison   runs side by side

JSON keys (--json): page, figures (paths of all files), title, panels [{title, verdict (who is best,
  or why that cannot be told), systems (ids), equal_tokens, planned_cluster,
  planned_tokens_per_second {ID: of the cost model}}], systems [{id, title, words, kind, experts,
  seeds, perplexity (of BASE the better of greedy and priced routing), routing (which of them; null
  where there is one way), perplexity_spread (standard deviation over seeds), greedy_perplexity,
  priced_perplexity, validated_tokens (that the last validation read), whole_split (whether they
  are all there are), equal_tokens_perplexity {PANEL: perplexity},
  equal_tokens_routing, floor_perplexity, tokens, seconds, tokens_per_second (median), active,
  parameters}], notes (what is missing or damaged); null where something is not known.
)";

struct Options {
  std::vector<std::string> paths;
  std::string out;
  bool json = false;
};

fs::path report_folder(const Options& options) {
  if (!options.out.empty()) return options.out;
  return options.paths.size() == 1 ? report_folder_of(options.paths.front()) : "report";
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json text(const std::string& words) { return words.empty() ? Json() : Json(words); }

Json system_json(const pages::Comparison& comparison, const pages::System& system) {
  const pages::SystemResult result = pages::result_of(system);
  Json at_equal_tokens = Json::object();
  for (const pages::Panel& panel : comparison.panels) {
    for (const size_t i : panel.systems) {
      if (&comparison.systems[i] == &system)
        at_equal_tokens[panel.title] =
            number(pages::perplexity_at(system, pages::tokens_of_all(comparison, panel)));
    }
  }
  return {{"id", system.id},
          {"title", system.title},
          {"words", system.words},
          {"kind", system.kind},
          {"experts", system.experts > 0 ? Json(system.experts) : Json()},
          {"seeds", result.best().count},
          {"perplexity", number(result.best().mean)},
          {"routing", text(result.routing)},
          {"perplexity_spread", number(result.best().deviation)},
          {"greedy_perplexity", number(result.greedy.mean)},
          {"priced_perplexity", number(result.priced.mean)},
          {"validated_tokens", number(result.validated_tokens)},
          {"whole_split", result.whole_split},
          {"equal_tokens_perplexity", at_equal_tokens},
          {"equal_tokens_routing", text(pages::routing_on_the_way(system))},
          {"floor_perplexity", number(result.floor)},
          {"tokens", number(result.tokens)},
          {"seconds", number(result.seconds)},
          {"tokens_per_second", number(result.tokens_per_second)},
          {"active", number(system.active)},
          {"parameters", number(system.parameters)}};
}

void print_json(const pages::Comparison& comparison, const pages::WrittenReport& written) {
  Json figures = Json::array(), panels = Json::array(), systems = Json::array();
  for (const fs::path& figure : written.figures) figures.push_back(figure.string());
  for (const pages::Panel& panel : comparison.panels) {
    Json ids = Json::array();
    for (const size_t i : panel.systems) ids.push_back(comparison.systems[i].id);
    panels.push_back({{"title", panel.title},
                      {"verdict", pages::verdict(comparison, panel)},
                      {"systems", ids},
                      {"equal_tokens", number(pages::tokens_of_all(comparison, panel))},
                      {"planned_cluster", text(panel.planned_cluster())},
                      {"planned_tokens_per_second", panel.planned.tokens_per_second}});
  }
  for (const pages::System& system : comparison.systems)
    systems.push_back(system_json(comparison, system));
  const Json out = {{"page", written.page.string()},
                    {"figures", figures},
                    {"title", comparison.title},
                    {"panels", panels},
                    {"systems", systems},
                    {"notes", comparison.notes}};
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

int report(const Options& options) {
  const auto [comparison, written] =
      write_report_of({options.paths.begin(), options.paths.end()}, report_folder(options));
  if (options.json)
    print_json(comparison, written);
  else
    fmt::print("{}\n", written.page.string());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "report", "Show runs and experiments as a page with figures", kFooter);
  command->add_option("RUN_OR_EXPERIMENT", options->paths, "folders of runs and experiments")
      ->required();
  command->add_option("--out", options->out,
                      "folder to write to, new or with an older report; default: report in the run "
                      "or experiment, or here if there are several");
  command->add_flag("--json", options->json, "print what was written, and the main numbers");
  command->callback([options, &chosen] { chosen = [options] { return report(*options); }; });
}

}  // namespace ballast::cli
