// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/pages/balance.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/verdict.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

using record::DomainResult;

bool is_telling(const DomainResult& domain) { return domain.tokens >= record::kTokensOfADomain; }

// "programs (1.77k tokens)": the domains of which too little was read; empty: none.
std::string too_few_in_words(const std::vector<DomainResult>& domains) {
  std::vector<std::string> words;
  for (const DomainResult& domain : domains) {
    if (!is_telling(domain))
      words.push_back(fmt::format("{} ({} tokens)", domain.name, count_text(domain.tokens)));
  }
  return in_words(words);
}

// lifts[d][e]: the share of domain d in the tokens of expert e over its share in all of them.
std::vector<std::vector<double>> lifts_of(const record::LayerUse& layer, size_t domains) {
  std::vector<double> of_domain(domains, 0), of_expert;
  for (const std::vector<double>& row : layer.domain_loads) {
    of_expert.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    for (size_t d = 0; d < std::min(domains, row.size()); ++d) of_domain[d] += row[d];
  }
  const double total = std::accumulate(of_expert.begin(), of_expert.end(), 0.0);
  std::vector<std::vector<double>> lifts(domains);
  for (size_t d = 0; d < domains; ++d) {
    for (size_t e = 0; e < of_expert.size(); ++e) {
      const double part = d < layer.domain_loads[e].size() ? layer.domain_loads[e][d] : 0;
      lifts[d].push_back(of_expert[e] > 0 && of_domain[d] > 0
                             ? part * total / (of_expert[e] * of_domain[d])
                             : record::kUnknown);
    }
  }
  return lifts;
}

// Experts ordered by the domain they have most of, and within it by how much; those that are hardly
// used last.
std::vector<size_t> expert_order(const record::LayerUse& layer,
                                 const std::vector<std::vector<double>>& lifts) {
  std::vector<size_t> order(lifts.empty() ? 0 : lifts.front().size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](size_t expert) {
    size_t best = lifts.size();
    double most = -1;
    for (size_t d = 0; d < lifts.size(); ++d) {
      if (lifts[d][expert] > most) {
        most = lifts[d][expert];
        best = d;
      }
    }
    return std::make_tuple(!is_used(layer, expert), best, -most);
  };
  std::ranges::stable_sort(order, {}, key);
  return order;
}

figures::HeatMap map_of(const record::LayerUse& layer, const std::vector<DomainResult>& domains) {
  const auto lifts = lifts_of(layer, domains.size());
  figures::HeatMap map;
  map.column_label = "expert";
  const std::vector<size_t> order = expert_order(layer, lifts);
  for (const size_t expert : order) map.columns.push_back(fmt::format("{}", expert));
  for (size_t d = 0; d < domains.size(); ++d) {
    if (!is_telling(domains[d])) continue;
    map.rows.push_back(domains[d].name);
    map.lifts.emplace_back();
    for (const size_t expert : order) map.lifts.back().push_back(lifts[d][expert]);
  }
  return map;
}

std::string sentence_of(const figures::HeatMap& map, const record::LayerUse& layer) {
  double most = 0;
  std::string domain;
  size_t expert = 0;
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const size_t one = std::stoul(map.columns[column]);
      if (!(map.lifts[row][column] > most) || !is_used(layer, one)) continue;
      most = map.lifts[row][column];
      domain = map.rows[row];
      expert = one;
    }
  }
  const double total = std::accumulate(layer.loads.begin(), layer.loads.end(), 0.0);
  std::string sentence = "No domain is preferred";
  if (most > 0)
    sentence = fmt::format(
        "The strongest preference is that of expert {} ({} of tokens) for {}, {:.1f} times its "
        "share of all tokens",
        expert, expert < layer.loads.size() ? percent_text(layer.loads[expert] / total) : "-",
        domain, most);
  if (std::isfinite(layer.domain_bits))
    sentence += fmt::format("; a token's domain tells {:.2f} of {:.2f} bits of its expert",
                            layer.domain_bits, load_bits(layer.loads));
  return sentence + ".";
}

// Of each system the map of its first layer, folded but for the first system's; maps of further
// layers would be most of the page: they are files.
void add_maps(Page& page, const std::vector<SparseSystem>& sparse) {
  size_t figures = 0;
  for (const SparseSystem& one : sparse) {
    const record::RoutingUse& routing = *one.validation->main();
    for (const record::LayerUse& layer : routing.layers) {
      if (layer.domain_loads.empty() || routing.domains.empty()) continue;
      figures::HeatMap map = map_of(layer, routing.domains);
      if (map.rows.empty()) continue;
      map.title = fmt::format("Domains of the experts of {}, {}", one.system->name, layer.name);
      map.description = sentence_of(map, layer);
      if (const std::string few = too_few_in_words(routing.domains); !few.empty())
        map.description += fmt::format(" Too few tokens were read of {}.", few);
      const std::string heading = fmt::format("{}: {}", one.system->name, layer.name);
      const std::string file = figures++ == 0 ? "domains" : fmt::format("domains_{}", figures);
      if (&layer != &routing.layers.front()) {
        page.linked_figure(file, map, heading, map.description);
        continue;
      }
      const bool folded = figures > 1;
      if (folded)
        page.begin_folded(heading);
      else
        page.subsection(sparse.size() > 1 ? heading : layer.name);
      page.wide_figure(file, map, map.description);
      if (folded) page.end_folded();
    }
  }
  if (figures == 0)
    page.note(
        "Which domains go to which experts is not known: it stands in validation.json, written at "
        "a run's last validation where the data has domains, and takes 2,000 tokens of a domain.");
}

// The routing of its best perplexity, where that was measured by domain; else greedy.
std::string routing_of_domains(const System& system) {
  const std::string best = result_of(system).routing;
  const bool is_known = std::ranges::all_of(system.runs, [&](const RunRecord& run) {
    const record::RoutingUse* use = run.validation ? run.validation->find(best) : nullptr;
    return use == nullptr ? !run.validation : !use->domains.empty();
  });
  return best.empty() || is_known ? best : "greedy";
}

double perplexity_of(const System& system, const std::string& domain) {
  std::vector<double> values;
  const bool is_priced = routing_of_domains(system) == "priced";
  for (const RunRecord& run : system.runs) {
    if (!run.validation) continue;
    const record::RoutingUse* routing =
        is_priced ? run.validation->find("priced") : run.validation->main();
    if (routing == nullptr) continue;
    for (const DomainResult& one : routing->domains) {
      if (one.name == domain && is_telling(one)) values.push_back(std::exp(one.loss));
    }
  }
  return spread_of(values).mean;
}

const std::vector<DomainResult>* domains_of(const Comparison& comparison) {
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      const record::RoutingUse* routing = run.validation ? run.validation->main() : nullptr;
      if (routing != nullptr && !routing->domains.empty()) return &routing->domains;
    }
  }
  return nullptr;
}

// REQUIRES: there are some, all telling.
std::string range_in_words(const System& system, const std::vector<DomainResult>& domains) {
  const auto by_perplexity = [&](const DomainResult& domain) {
    return perplexity_of(system, domain.name);
  };
  const DomainResult& easy = *std::ranges::min_element(domains, {}, by_perplexity);
  const DomainResult& hard = *std::ranges::max_element(domains, {}, by_perplexity);
  return fmt::format("Of {}, {} is the easiest domain (perplexity {}) and {} the hardest ({}).",
                     with_routing(system.title, routing_of_domains(system)), easy.name,
                     perplexity_text(by_perplexity(easy)), hard.name,
                     perplexity_text(by_perplexity(hard)));
}

void add_table(Page& page, const Comparison& comparison, const Panel& panel,
               const std::vector<DomainResult>& domains) {
  const System* reference = reference_of(comparison, panel);
  if (reference == nullptr) return;
  const bool are_compared = why_not_comparable(comparison, panel).empty();
  Table table;
  table.head = {"domain", "tokens"};
  std::vector<const System*> systems;
  for (const size_t i : panel.systems) {
    const System& system = comparison.systems[i];
    if (std::ranges::none_of(domains, [&](const DomainResult& one) {
          return std::isfinite(perplexity_of(system, one.name));
        }))
      continue;
    systems.push_back(&system);
    table.head.push_back(with_routing(system.title, routing_of_domains(system)));
  }
  if (systems.empty()) {
    page.note("Nothing is told: of no domain were enough tokens read.");
    return;
  }
  for (const DomainResult& domain : domains) {
    std::vector<std::string> row = {figures::markup_text(domain.name), count_text(domain.tokens)};
    for (const System* system : systems) {
      if (!std::isfinite(perplexity_of(*system, domain.name))) {
        row.emplace_back("<small>too few tokens</small>");
        continue;
      }
      row.push_back(perplexity_text(perplexity_of(*system, domain.name)));
      const double usual = perplexity_of(*reference, domain.name);
      if (are_compared && system != reference && std::isfinite(usual))
        row.back() += fmt::format(" <small>{}</small>",
                                  change_text(perplexity_of(*system, domain.name), usual));
    }
    table.rows.push_back(std::move(row));
  }
  if (!panel.title.empty()) page.subsection(panel.title);
  std::vector<DomainResult> telling = domains;
  std::erase_if(telling, [&](const DomainResult& one) {
    return !std::isfinite(perplexity_of(*systems.front(), one.name));
  });
  if (telling.size() > 1) page.paragraph(range_in_words(*systems.front(), telling));
  page.table(table);
}

}  // namespace

void add_domains(Page& page, const Comparison& comparison) {
  const std::vector<SparseSystem> sparse = sparse_systems(comparison);
  const std::vector<DomainResult>* domains = domains_of(comparison);
  if (sparse.empty() && domains == nullptr) return;
  if (!sparse.empty()) {
    page.section("domains", "Domains", "Domains: which text goes to which expert");
    add_measured_on(page, comparison);
    add_maps(page, sparse);
  }
  if (domains == nullptr) return;
  page.section("domain-perplexity", "Perplexity by domain", "Perplexity by domain");
  add_measured_on(page, comparison);
  for (const Panel& panel : comparison.panels) add_table(page, comparison, panel, *domains);
}

}  // namespace ballast::pages
