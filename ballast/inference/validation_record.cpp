// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/validation_record.h"

#include <fmt/format.h>

#include <string>

#include "ballast/config/system_words.h"
#include "ballast/tokenizer/token_text.h"

namespace ballast::inference {
namespace {

std::vector<double> numbers(const std::vector<int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

// The tokens that an expert got most often.
std::vector<record::TokenUse> top_tokens(const ExpertUse& use, int64_t expert,
                                         const tokenizer::Tokenizer* tokenizer) {
  std::vector<record::TokenUse> list;
  for (const auto& top : use.top_tokens(expert, EvaluatedModel::kTokensOfExpert)) {
    list.push_back(
        {.text =
             tokenizer::token_text(tokenizer, top.token).value_or(fmt::format("#{}", top.token)),
         .count = static_cast<double>(top.count),
         .lift = top.lift,
         .id = top.token});
  }
  return list;
}

// What a layer's experts got, beyond how much.
void add_uses(const Evaluation& evaluation, size_t place, const tokenizer::Tokenizer* tokenizer,
              record::LayerUse& layer) {
  const ExpertUse &use = evaluation.experts[place],
                  &previous = evaluation.previous_tokens.at(place);
  layer.domain_bits = use.domain_bits().value_or(record::kUnknown);
  layer.token_bits = use.token_information();
  layer.previous_bits = previous.token_information();
  for (int64_t expert = 0; expert < use.experts(); ++expert) {
    if (!use.domains().empty()) layer.domain_loads.push_back(numbers(use.domain_loads(expert)));
    layer.experts.push_back({.expert = expert,
                             .tokens = top_tokens(use, expert, tokenizer),
                             .previous = top_tokens(previous, expert, tokenizer)});
  }
}

record::RoutingUse routing_use(const RoutedEvaluation& routed, const EvaluatedModel& model) {
  const Evaluation& evaluation = routed.evaluation;
  record::RoutingUse use{.routing = evaluation.experts.empty()
                                        ? ""
                                        : std::string(experts::routing_name(routed.routing)),
                         .loss = evaluation.loss,
                         .perplexity = evaluation.perplexity,
                         .bits_per_byte = evaluation.bits_per_byte.value_or(record::kUnknown),
                         .domains = domain_results(evaluation.domains)};
  const std::vector<int64_t> places = model.config.experts.places(model.config.model.layers);
  const std::vector<std::string> names = config::layers_in_words(model.config);
  for (size_t i = 0; i < evaluation.experts.size(); ++i) {
    record::LayerUse& layer = use.layers.emplace_back();
    layer.layer = places[i];
    layer.name = names[i];
    layer.loads = numbers(evaluation.experts[i].loads());
    layer.first_direction_share = evaluation.first_direction_shares.at(i);
    if (!evaluation.second_experts.empty())
      layer.second_loads = numbers(evaluation.second_experts[i].loads());
    if (routed.routing != experts::RoutingMode::kBalanced)
      add_uses(evaluation, i, model.tokenizer, layer);
  }
  return use;
}

}  // namespace

record::LastValidation last_validation(const EvaluatedModel& model) {
  const Evaluation& first = model.routings.front().evaluation;
  record::LastValidation validation{
      .step = model.step,
      .tokens = static_cast<double>(first.tokens),
      .windows = static_cast<double>(first.windows),
      .split_tokens = static_cast<double>(first.split_tokens),
      .split_windows = static_cast<double>(first.split_windows),
      .floor = model.windows.source().floor_per_token().value_or(record::kUnknown),
      .whole_split = first.is_whole_split(),
      .system = config::system_in_words(model.config),
      .routings = {}};
  for (const RoutedEvaluation& routed : model.routings)
    validation.routings.push_back(routing_use(routed, model));
  return validation;
}

std::vector<record::DomainResult> domain_results(const std::vector<DomainLoss>& domains) {
  std::vector<record::DomainResult> results;
  for (const DomainLoss& domain : domains) {
    results.push_back({.name = domain.name,
                       .tokens = static_cast<double>(domain.tokens),
                       .loss = domain.is_told() ? domain.loss : record::kUnknown});
  }
  return results;
}

}  // namespace ballast::inference
