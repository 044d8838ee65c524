// SPDX-License-Identifier: Apache-2.0
#include "cli/expert_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "ballast/tokenizer/token_text.h"

namespace ballast::cli {
namespace {

constexpr size_t kColumns = 100, kDomainColumns = 6, kDomainWidth = 8;
constexpr size_t kBusiest = 16, kLeastBusy = 4, kMostTokens = 10;
constexpr std::ptrdiff_t kDead = 12;  // named

size_t width_of(std::string_view text) {  // characters, of valid UTF-8
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80U; }));
}

std::string cut_to(const std::string& text, size_t characters) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((static_cast<uint8_t>(text[end]) & 0xC0U) != 0x80U && ++seen > characters) break;
  }
  return text.substr(0, end);
}

// Those that have enough tokens to tell of them.
bool is_told(int64_t tokens) { return tokens >= record::kTokensOfADomain; }

// The domains that have most tokens, as indices, in the order of their names.
std::vector<size_t> shown_domains(const inference::ExpertUse& use) {
  const std::vector<int64_t> sizes = use.tokens_of_domains();
  std::vector<size_t> shown(sizes.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  std::ranges::stable_sort(shown, std::ranges::greater(), [&](size_t i) { return sizes[i]; });
  std::erase_if(shown, [&](size_t i) { return !is_told(sizes[i]); });
  if (shown.size() > kDomainColumns) shown.resize(kDomainColumns);
  std::ranges::sort(shown);
  return shown;
}

// All experts by number; of many, some by falling load.
std::vector<int64_t> shown_experts(const std::vector<int64_t>& loads) {
  std::vector<int64_t> shown(loads.size());
  std::iota(shown.begin(), shown.end(), int64_t{0});
  if (shown.size() <= kBusiest + kLeastBusy) return shown;
  std::ranges::stable_sort(shown, std::ranges::greater(),
                           [&](int64_t i) { return loads[static_cast<size_t>(i)]; });
  shown.erase(shown.begin() + kBusiest, shown.end() - kLeastBusy);
  return shown;
}

// One layer's experts: `previous` of the tokens before theirs; null: not counted.
struct LayerOfExperts {
  const inference::ExpertUse& use;
  const inference::ExpertUse* previous = nullptr;
};

std::string heading(const LayerOfExperts& layer, const std::string& name) {
  const inference::ExpertUse& use = layer.use;
  const std::vector<int64_t> dead = use.dead_experts();
  std::string text = fmt::format(
      "{}: {} tokens; {} of {} experts in use, the busiest has {:.2f} x its fair share\n", name,
      use.total(), experts_in_use(use), use.experts(), use.busiest_share());
  text += "  bits that a token's expert tells:";
  if (const std::optional<double> bits = use.domain_bits())
    text += fmt::format(" {:.3f} of its domain,", *bits);
  text += fmt::format(" {:.3f} of the token", use.token_information());
  if (layer.previous != nullptr)
    text += fmt::format(", {:.3f} of the one before", layer.previous->token_information());
  text += "\n";
  if (!dead.empty()) {
    const std::vector<int64_t> named(dead.begin(),
                                     dead.begin() + std::min(std::ssize(dead), kDead));
    text += fmt::format(
        "  no token goes to expert {}{}\n", fmt::join(named, ", "),
        dead.size() > named.size() ? fmt::format(" and {} more", dead.size() - named.size()) : "");
  }
  return text;
}

// In quotes; #17 where its text is not known.
std::string quoted_token(const tokenizer::Tokenizer* tokenizer, int64_t token) {
  const std::optional<std::string> text = tokenizer::token_text(tokenizer, token);
  if (!text) return fmt::format("#{}", token);
  std::string quoted = "\"";
  for (const char c : *text) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
  return quoted + "\"";
}

std::string top_tokens(const inference::ExpertUse& use, int64_t expert,
                       const tokenizer::Tokenizer* tokenizer, size_t width) {
  std::string line;
  for (const auto& top : use.top_tokens(expert, kMostTokens)) {
    const std::string text = quoted_token(tokenizer, top.token);
    const std::string space = line.empty() ? "   " : " ";
    if (width_of(line) + space.size() + width_of(text) > width) break;
    line += space + text;
  }
  return line;
}

std::string layer_table(const LayerOfExperts& layer, const tokenizer::Tokenizer* tokenizer) {
  const inference::ExpertUse& use = layer.use;
  const std::vector<size_t> domains = shown_domains(use);
  const std::vector<int64_t> loads = use.loads(), shown = shown_experts(loads);
  std::string text = fmt::format("  {:>6} {:>8} {:>6}", "expert", "load", "x fair");
  for (const size_t domain : domains) {
    const std::string name = cut_to(use.domains()[domain], kDomainWidth - 1);
    text += std::string(kDomainWidth - width_of(name), ' ') + name;
  }
  text += layer.previous == nullptr ? "   most often\n" : "   most often, and after what\n";
  const size_t taken = 2 + 6 + 1 + 8 + 1 + 6 + domains.size() * kDomainWidth;
  for (size_t i = 0; i < shown.size(); ++i) {
    const int64_t expert = shown[i], load = loads[static_cast<size_t>(expert)];
    if (shown.size() < loads.size() && i == kBusiest)
      text += fmt::format(
          "  {:>6}   {} more, not shown: these are the {} busiest and the {} least "
          "busy\n",
          "...", loads.size() - shown.size(), kBusiest, kLeastBusy);
    const auto total = static_cast<double>(std::max<int64_t>(1, use.total()));
    text += fmt::format("  {:>6} {:>8} {:>6.2f}", expert, load,
                        static_cast<double>(load * use.experts()) / total);
    const std::vector<int64_t> of_domain = use.domain_loads(expert);
    for (const size_t domain : domains) {
      const double share =
          load > 0 ? 100.0 * static_cast<double>(of_domain[domain]) / static_cast<double>(load) : 0;
      text += fmt::format("{:>{}}", of_domain[domain] > 0 ? fmt::format("{:.0f}%", share) : "-",
                          kDomainWidth);
    }
    text += top_tokens(use, expert, tokenizer, kColumns - taken) + "\n";
    if (layer.previous == nullptr || load == 0) continue;
    constexpr std::string_view kAfter = "         after";
    text += fmt::format("{}{}\n", kAfter,
                        top_tokens(*layer.previous, expert, tokenizer, kColumns - kAfter.size()));
  }
  if (domains.size() == kDomainColumns && use.domains().size() > kDomainColumns)
    text += fmt::format("  the {} largest of {} domains\n", kDomainColumns, use.domains().size());
  const auto few = std::ranges::count_if(
      use.tokens_of_domains(), [](int64_t tokens) { return tokens > 0 && !is_told(tokens); });
  if (few > 0)
    text += fmt::format("  {} domain(s) not told of: too few tokens, less than {}\n", few,
                        record::kTokensOfADomain);
  return text;
}

}  // namespace

std::string expert_table(const inference::Evaluation& evaluation,
                         const std::vector<std::string>& names,
                         const tokenizer::Tokenizer* tokenizer) {
  std::string text;
  const std::vector<inference::ExpertUse>& previous = evaluation.previous_tokens;
  for (size_t i = 0; i < evaluation.experts.size(); ++i) {
    const LayerOfExperts layer{evaluation.experts[i], previous.empty() ? nullptr : &previous[i]};
    if (i > 0) text += "\n";
    text += heading(layer, names[i]) + layer_table(layer, tokenizer);
  }
  return text;
}

int64_t experts_in_use(const inference::ExpertUse& use) {
  return std::ranges::count_if(use.loads(), [](int64_t load) { return load > 0; });
}

}  // namespace ballast::cli
