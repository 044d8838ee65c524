// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/validation_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ballast/config/system_words.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/tokenizer/token_text.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

// The tokens that an expert got most often.
Json top_tokens_json(const ExpertUse& use, int64_t expert, const Tokenizer* tokenizer) {
  Json list = Json::array();
  for (const auto& top : use.top_tokens(expert, ValidationRecord::kTokensOfExpert)) {
    list.push_back(
        {{"id", top.token},
         {"text", token_text(tokenizer, top.token).value_or(fmt::format("#{}", top.token))},
         {"count", top.count},
         {"lift", top.lift}});
  }
  return list;
}

Json domain_loads_json(const ExpertUse& use) {
  Json list = Json::array();
  for (int64_t expert = 0; expert < use.experts() && !use.domains().empty(); ++expert)
    list.push_back(use.domain_loads(expert));
  return list;
}

// What a layer's experts got, beyond how much.
void add_uses(const Evaluation& evaluation, size_t place, const Tokenizer* tokenizer, Json& layer) {
  const ExpertUse &use = evaluation.experts[place],
                  &previous = evaluation.previous_tokens.at(place);
  layer["domain_loads"] = domain_loads_json(use);
  layer["domain_bits"] = use.domains().empty() ? nlohmann::ordered_json()
                                               : nlohmann::ordered_json(use.domain_information());
  layer["token_bits"] = use.token_information();
  layer["previous_bits"] = previous.token_information();
  layer["experts"] = Json::array();
  for (int64_t expert = 0; expert < use.experts(); ++expert) {
    layer["experts"].push_back({{"expert", expert},
                                {"tokens", top_tokens_json(use, expert, tokenizer)},
                                {"previous", top_tokens_json(previous, expert, tokenizer)}});
  }
}

Json layers_json(const RoutedEvaluation& routed, const ValidationRecord& record) {
  const Evaluation& evaluation = routed.evaluation;
  const std::vector<int64_t> places = record.config.experts.places(record.config.model.layers);
  const std::vector<std::string> names = layers_in_words(record.config);
  Json layers = Json::array();
  for (size_t i = 0; i < evaluation.experts.size(); ++i) {
    Json layer = {
        {"layer", places[i]}, {"name", names[i]}, {"loads", evaluation.experts[i].loads()}};
    if (!evaluation.second_experts.empty())
      layer["second_loads"] = evaluation.second_experts[i].loads();
    if (routed.routing != RoutingMode::kBalanced) add_uses(evaluation, i, record.tokenizer, layer);
    layers.push_back(std::move(layer));
  }
  return layers;
}

Json routing_json(const RoutedEvaluation& routed, const ValidationRecord& record) {
  const Evaluation& evaluation = routed.evaluation;
  const bool is_dense = evaluation.experts.empty();
  Json routing = {{"routing", is_dense ? Json() : Json(routing_name(routed.routing))},
                  {"loss", evaluation.loss},
                  {"perplexity", evaluation.perplexity}};
  if (routed.routing != RoutingMode::kBalanced) {
    routing["bits_per_byte"] = or_null(evaluation.bits_per_byte);
    routing["domains"] = domains_json(evaluation.domains);
  }
  routing["layers"] = layers_json(routed, record);
  return routing;
}

}  // namespace

void write_validation(const std::filesystem::path& path, const ValidationRecord& record) {
  const uint64_t tokens = record.routings.front().evaluation.tokens;
  Json out = {{"format", "ballast-validation"},
              {"version", 1},
              {"step", record.step},
              {"tokens", tokens},
              {"whole_split", tokens == record.windows.predictions()},
              {"system", system_in_words(record.config)},
              {"floor_per_token", or_null(record.windows.source().floor_per_token())},
              {"routings", Json::array()}};
  for (const RoutedEvaluation& routed : record.routings)
    out["routings"].push_back(routing_json(routed, record));
  // Names of domains are those of files, which may not be UTF-8.
  write_text_atomically(path, out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool is_validation_file(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const nlohmann::json read = parse_json_or_discard(read_text(path));
  return read.is_object() && read.value("format", nlohmann::json()) == "ballast-validation";
}

Json domains_json(const std::vector<DomainLoss>& domains) {
  Json list = Json::array();
  for (const DomainLoss& domain : domains) {
    list.push_back({{"name", domain.name},
                    {"tokens", domain.tokens},
                    {"loss", domain.tokens > 0 ? Json(domain.loss) : Json()}});
  }
  return list;
}

}  // namespace ballast
