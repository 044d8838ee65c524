// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ballast/config/system_words.h"
#include "ballast/inference/validation_record.h"
#include "ballast/system/utf8.h"
#include "cli/expert_table.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTopTokens = 16;  // of an expert, in JSON

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

std::vector<int64_t> places_of(const loading::LoadedModel& loaded) {
  std::vector<int64_t> places;
  for (const auto& layer : loaded.model->expert_layers()) places.push_back(layer->place());
  return places;
}

bool is_dense(const loading::LoadedModel& loaded) { return loaded.model->expert_layers().empty(); }

std::string title(const loading::LoadedModel& loaded) {
  return fmt::format("{} (step {})\n", loaded.path.string(), loaded.step);
}

// The decoded token, or nothing where it cannot be known.
Json decoded(const tokenizer::Tokenizer* tokenizer, int64_t token) {
  if (tokenizer == nullptr || token >= static_cast<int64_t>(tokenizer->vocabulary_size()))
    return {};
  return replace_invalid_utf8(tokenizer->token_bytes(static_cast<tokenizer::TokenId>(token)));
}

Json top_tokens_json(const inference::ExpertUse& use, int64_t expert,
                     const tokenizer::Tokenizer* tokenizer) {
  Json tokens = Json::array();
  for (const auto& top : use.top_tokens(expert, kTopTokens)) {
    tokens.push_back({{"token", top.token},
                      {"text", decoded(tokenizer, top.token)},
                      {"count", top.count},
                      {"lift", top.lift}});
  }
  return tokens;
}

Json expert_json(const inference::ExpertUse& use, const inference::ExpertUse& previous,
                 int64_t expert, const tokenizer::Tokenizer* tokenizer) {
  const int64_t load = use.loads()[static_cast<size_t>(expert)];
  Json domains = Json::object();
  const std::vector<int64_t> of_domain = use.domain_loads(expert), all = use.tokens_of_domains();
  for (size_t i = 0; i < of_domain.size(); ++i) {
    Json& share = domains[use.domains()[i]] = Json();  // null: too few tokens to tell
    if (all[i] < record::kTokensOfADomain) continue;
    share = load > 0 ? static_cast<double>(of_domain[i]) / static_cast<double>(load) : 0.0;
  }
  return {{"expert", expert},
          {"load", load},
          {"domains", domains},
          {"top_tokens", top_tokens_json(use, expert, tokenizer)},
          {"previous_tokens", top_tokens_json(previous, expert, tokenizer)}};
}

Json layer_json(const inference::Evaluation& evaluation, size_t index, int64_t place,
                const EvalReport& report) {
  const inference::ExpertUse& use = evaluation.experts[index];
  Json layer = {{"layer", place},
                {"busiest_share", use.busiest_share()},
                {"experts_in_use", experts_in_use(use)},
                {"dead_experts", use.dead_experts()},
                {"domain_information_bits", or_null(use.domain_bits())},
                {"loads", use.loads()}};
  if (!report.with_experts) return layer;
  const inference::ExpertUse& previous = evaluation.previous_tokens.at(index);
  layer["token_information_bits"] = use.token_information();
  layer["previous_information_bits"] = previous.token_information();
  layer["experts"] = Json::array();
  for (int64_t expert = 0; expert < use.experts(); ++expert)
    layer["experts"].push_back(expert_json(use, previous, expert, report.model.tokenizer.get()));
  return layer;
}

Json routing_json(const RoutingResult& result, const EvalReport& report) {
  const inference::Evaluation& e = result.evaluation;
  const std::vector<int64_t> places = places_of(report.model);
  Json layers = Json::array();
  for (size_t i = 0; i < e.experts.size(); ++i) {
    layers.push_back(layer_json(e, i, places[i], report));
    if (e.second_experts.empty()) continue;
    const inference::ExpertUse& second = e.second_experts[i];
    layers.back()["second_experts"] = {{"busiest_share", second.busiest_share()},
                                       {"experts_in_use", experts_in_use(second)},
                                       {"loads", second.loads()}};
  }
  return {{"routing", experts::routing_name(result.routing)},
          {"loss", e.loss},
          {"perplexity", e.perplexity},
          {"bits_per_byte", or_null(e.bits_per_byte)},
          {"domains", record::domains_json(inference::domain_results(e.domains))},
          {"layers", layers}};
}

// "1.82 x its fair share" and so on, of one layer.
std::string balance_text(const inference::ExpertUse& use) {
  return fmt::format(
      "busiest expert {:.2f} x its fair share, {} of {} in use{}", use.busiest_share(),
      experts_in_use(use), use.experts(),
      use.domain_bits() ? fmt::format(", {:.3f} bits of domain", *use.domain_bits()) : "");
}

std::string one_result(const EvalReport& report) {
  const RoutingResult& result = report.results.front();
  const inference::Evaluation& e = result.evaluation;
  std::string text;
  if (!is_dense(report.model))
    text += fmt::format("  routing        {}\n", experts::routing_name(result.routing));
  text += fmt::format("  loss           {:.4f} nats a token\n  perplexity     {:.3f}\n", e.loss,
                      e.perplexity);
  if (e.bits_per_byte) text += fmt::format("  bits per byte  {:.4f}\n", *e.bits_per_byte);
  const std::vector<std::string> names = config::layers_in_words(report.model.config);
  for (size_t i = 0; i < e.experts.size(); ++i) {
    text += fmt::format("  {:<13}  {}\n", names[i], balance_text(e.experts[i]));
    if (!e.second_experts.empty())
      text += fmt::format("    second ones  {}\n", balance_text(e.second_experts[i]));
  }
  return text;
}

std::string side_by_side(const EvalReport& report) {
  const bool has_bytes = report.results.front().evaluation.bits_per_byte.has_value();
  std::string text = fmt::format("  {:<9} {:>11} {:>14} {:>11} {:>16} {:>9} {:>15}\n", "routing",
                                 "perplexity", has_bytes ? "bits per byte" : "nats a token",
                                 "BASE layer", "busiest, x fair", "in use", "bits of domain");
  const std::vector<int64_t> places = places_of(report.model);
  for (const RoutingResult& result : report.results) {
    const inference::Evaluation& e = result.evaluation;
    for (size_t i = 0; i < e.experts.size(); ++i) {
      const inference::ExpertUse& use = e.experts[i];
      const std::string name = i == 0 ? std::string(experts::routing_name(result.routing)) : "",
                        perplexity = i == 0 ? fmt::format("{:.3f}", e.perplexity) : "",
                        bits =
                            i == 0 ? fmt::format("{:.4f}", e.bits_per_byte.value_or(e.loss)) : "";
      text += fmt::format("  {:<9} {:>11} {:>14} {:>11} {:>16.2f} {:>9} {:>15}\n", name, perplexity,
                          bits, places[i], use.busiest_share(),
                          fmt::format("{} / {}", experts_in_use(use), use.experts()),
                          use.domain_bits() ? fmt::format("{:.3f}", *use.domain_bits()) : "-");
    }
  }
  return text;
}

// Perplexities of each domain, in a column for each way of routing.
std::string domain_table(const EvalReport& report) {
  const std::vector<inference::DomainLoss>& domains = report.results.front().evaluation.domains;
  const auto has_tokens = [](const inference::DomainLoss& domain) { return domain.tokens > 0; };
  if (std::ranges::count_if(domains, has_tokens) < 2) return "";
  size_t width = 6;
  for (const inference::DomainLoss& domain : domains) width = std::max(width, domain.name.size());
  std::string text = fmt::format("\n  {:<{}} {:>10}", "domain", width, "tokens");
  for (const RoutingResult& result : report.results)
    text += fmt::format(" {:>11}", report.results.size() > 1 ? experts::routing_name(result.routing)
                                                             : "perplexity");
  text += "\n";
  for (size_t i = 0; i < domains.size(); ++i) {
    if (!has_tokens(domains[i])) continue;
    text += fmt::format("  {:<{}} {:>10}", domains[i].name, width, domains[i].tokens);
    for (const RoutingResult& result : report.results)
      text += fmt::format(" {:>11}",
                          domains[i].is_told()
                              ? fmt::format("{:.3f}", std::exp(result.evaluation.domains[i].loss))
                              : "-");
    text += domains[i].is_told() ? "\n" : "  too few tokens\n";
  }
  return text;
}

constexpr const char* kBalancedNote =
    "  balanced routing sees the future, as the tokens of a batch compete for experts: its\n"
    "  perplexity is not that of a language model\n";

bool any_balanced(const EvalReport& report) {
  return std::ranges::any_of(report.results, [](const RoutingResult& result) {
    return result.routing == experts::RoutingMode::kBalanced;
  });
}

}  // namespace

std::string to_text(const EvalReport& report) {
  std::string text = title(report.model);
  text += report.results.size() == 1 ? one_result(report) : side_by_side(report);
  if (report.floor)
    text += fmt::format("  entropy floor  {:.4f} nats a token (perplexity {:.3f})\n", *report.floor,
                        std::exp(*report.floor));
  text += fmt::format("  tokens         {}\n", report.results.front().evaluation.tokens);
  if (any_balanced(report)) text += kBalancedNote;
  text += domain_table(report);
  if (!report.with_experts) return text;
  for (const RoutingResult& result : report.results) {
    text += fmt::format("\n{} routing\n", experts::routing_name(result.routing));
    text += expert_table(result.evaluation, config::layers_in_words(report.model.config),
                         report.model.tokenizer.get());
  }
  return text;
}

std::string to_json(const EvalReport& report) {
  const RoutingResult& main = report.results[report.main];
  const inference::Evaluation& e = main.evaluation;
  Json out = {{"model", report.model.path.string()},
              {"step", report.model.step},
              {"data", report.data},
              {"loss", e.loss},
              {"perplexity", e.perplexity},
              {"bits_per_byte", or_null(e.bits_per_byte)},
              {"tokens", e.tokens},
              {"stride", report.stride},
              {"floor_per_token", or_null(report.floor)},
              {"domains", record::domains_json(inference::domain_results(e.domains))}};
  out["routing"] = is_dense(report.model) ? Json() : Json(experts::routing_name(main.routing));
  out["routings"] = Json::array();
  if (!is_dense(report.model)) {
    for (const RoutingResult& result : report.results)
      out["routings"].push_back(routing_json(result, report));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool AuditSummary::passed() const {
  return std::ranges::all_of(audits, [](const RoutingAudit& one) { return one.audit.passed(); });
}

std::string to_text(const AuditSummary& summary) {
  std::string text = title(summary.model);
  for (const auto& [routing, audit] : summary.audits) {
    const inference::ComparisonCounts& c = audit.counts;
    text += fmt::format(
        "  causality{}: {}\n",
        is_dense(summary.model) ? "" : fmt::format(", {} routing", experts::routing_name(routing)),
        audit.passed() ? "passed" : "FAILED");
    text += fmt::format(
        "    {} windows, each cut at up to {} places, {} cuts in all: tokens after a cut were "
        "replaced\n",
        audit.windows, inference::AuditOptions().cuts, audit.cuts);
    text += fmt::format(
        "    routes before cuts    {} compared, {} changed, {} more by a tie within rounding\n",
        c.routes, c.changed_routes, c.ties);
    text += fmt::format(
        "    logits before cuts    {} positions compared, {} changed, {} left out "
        "after ties\n",
        c.logits, c.changed_logits, c.left_out);
    text += fmt::format(
        "    largest difference    {:.1e} of the largest logit; rounding explains "
        "{:.1e}\n",
        c.logit_difference, audit.bounds.logits);
    if (!audit.first_leak.empty()) text += fmt::format("    first: {}\n", audit.first_leak);
  }
  return text;
}

std::string to_json(const AuditSummary& summary) {
  Json audits = Json::array();
  for (const auto& [routing, audit] : summary.audits) {
    const inference::ComparisonCounts& c = audit.counts;
    audits.push_back(
        {{"routing", is_dense(summary.model) ? Json() : Json(experts::routing_name(routing))},
         {"passed", audit.passed()},
         {"windows", audit.windows},
         {"cuts", audit.cuts},
         {"routes", c.routes},
         {"ties", c.ties},
         {"changed_routes", c.changed_routes},
         {"logits", c.logits},
         {"changed_logits", c.changed_logits},
         {"left_out", c.left_out},
         {"logit_difference", c.logit_difference},
         {"logit_bound", audit.bounds.logits},
         {"score_bound", audit.bounds.scores},
         {"first_leak", audit.first_leak.empty() ? Json() : Json(audit.first_leak)}});
  }
  const Json out = {{"model", summary.model.path.string()},
                    {"step", summary.model.step},
                    {"data", summary.data},
                    {"passed", summary.passed()},
                    {"audits", audits}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ballast::cli
