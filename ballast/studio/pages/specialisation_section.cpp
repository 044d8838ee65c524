// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/pages/balance.h"
#include "ballast/studio/pages/results.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/studio/pages/specialisation.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

constexpr size_t kShown = 24;  // experts of a layer that are not folded
constexpr size_t kTokens = 5;  // of each list, as in the paper's table

std::string tokens_html(const std::vector<record::TokenUse>& tokens) {
  std::string html;
  for (const record::TokenUse& token : std::span(tokens).first(std::min(kTokens, tokens.size()))) {
    const std::string lift = !std::isfinite(token.lift) ? ""
                             : token.lift < 9.95        ? fmt::format("×{:.1f}", token.lift)
                                                        : fmt::format("×{:.0f}", token.lift);
    html += fmt::format("<span class=\"token\"><code>{}</code> <small>{}</small></span>",
                        figures::markup_text(with_visible_spaces(token.text)), lift);
  }
  return html;
}

std::string share_text(const record::LayerUse& layer, size_t expert) {
  const double total = std::accumulate(layer.loads.begin(), layer.loads.end(), 0.0);
  return expert < layer.loads.size() ? percent_text(layer.loads[expert] / total) : "-";
}

Table table_of(const record::LayerUse& layer,
               std::span<const record::ExpertTokens* const> experts) {
  Table table;
  table.head = {"expert", "share of tokens", "most frequent previous tokens, lift over chance",
                "most frequent current tokens, lift over chance"};
  table.text_columns = table.head.size();
  for (const record::ExpertTokens* expert : experts) {
    table.rows.push_back({fmt::format("{}", expert->expert),
                          share_text(layer, static_cast<size_t>(expert->expert)),
                          tokens_html(expert->previous), tokens_html(expert->tokens)});
  }
  return table;
}

std::string sentence_of(const record::LayerUse& layer,
                        const std::vector<const record::ExpertTokens*>& experts) {
  std::string sentence;
  const auto favourite =
      [](const std::vector<record::TokenUse>& tokens) -> const record::TokenUse* {
    return tokens.empty() ? nullptr : &tokens.front();
  };
  const auto first = static_cast<size_t>(experts.front()->expert);
  if (const record::TokenUse* token = favourite(experts.front()->tokens);
      token != nullptr && is_used(layer, first))
    sentence = fmt::format(
        "The most specialised expert, {} ({} of tokens), gets “{}” {:.1f} times as often as chance "
        "would",
        first, share_text(layer, first), with_visible_spaces(token->text), token->lift);
  const double all = load_bits(layer.loads);
  if (std::isfinite(layer.token_bits))
    sentence += fmt::format(
        "{}the current token tells {:.2f} of the {:.2f} bits that say which of {} experts is "
        "chosen",
        sentence.empty() ? "" : "; ", layer.token_bits, all, layer.loads.size());
  if (std::isfinite(layer.previous_bits))
    sentence += fmt::format(", the token before {:.2f}", layer.previous_bits);
  return sentence + ".";
}

void add_layer(Page& page, const record::LayerUse& layer) {
  const std::vector<const record::ExpertTokens*> experts = by_specialisation(layer);
  if (experts.empty()) return;
  page.paragraph(sentence_of(layer, experts));
  const std::span<const record::ExpertTokens* const> all = experts;
  const size_t shown = std::min(kShown, all.size());
  page.table(table_of(layer, all.first(shown)));
  if (shown == all.size()) return;
  page.begin_folded(fmt::format("the other {} experts", all.size() - shown));
  page.table(table_of(layer, all.subspan(shown)));
  page.end_folded();
}

bool has_tokens(const SparseSystem& sparse) {
  return std::ranges::any_of(sparse.validation->main()->layers,
                             [](const record::LayerUse& layer) { return !layer.experts.empty(); });
}

}  // namespace

void add_specialisation(Page& page, const Comparison& comparison) {
  std::vector<SparseSystem> sparse = sparse_systems(comparison);
  if (sparse.empty()) return;
  page.section("specialisation", "Specialisation", "Specialisation: which tokens experts get");
  std::erase_if(sparse, [](const SparseSystem& one) { return !has_tokens(one); });
  if (sparse.empty()) {
    page.note(
        "Not known: the runs were written before validation.json existed, or have not come to "
        "their "
        "last validation.");
    return;
  }
  add_measured_on(page, comparison);
  bool first = true;
  for (const SparseSystem& one : sparse) {
    for (const record::LayerUse& layer : one.validation->main()->layers) {
      const std::string heading =
          sparse.size() > 1 ? fmt::format("{}: {}", one.system->name, layer.name) : layer.name;
      if (first)
        page.subsection(heading);
      else
        page.begin_folded(heading);
      add_layer(page, layer);
      if (!first) page.end_folded();
      first = false;
    }
  }
}

}  // namespace ballast::pages
