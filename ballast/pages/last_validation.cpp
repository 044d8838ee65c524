// SPDX-License-Identifier: Apache-2.0
#include "ballast/pages/last_validation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ballast/pages/json_fields.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast {
namespace {

using nlohmann::json;

std::vector<TokenUse> read_tokens(const json& list) {
  std::vector<TokenUse> tokens;
  for (const json& token : list)
    tokens.push_back({text_in(token, "text"), number_in(token, "count"), number_in(token, "lift")});
  return tokens;
}

std::vector<DomainResult> read_domains(const json& list) {
  std::vector<DomainResult> domains;
  for (const json& domain : list)
    domains.push_back(
        {text_in(domain, "name"), number_in(domain, "tokens"), number_in(domain, "loss")});
  return domains;
}

LayerUse read_layer(const json& record) {
  LayerUse layer;
  layer.layer = count_in(record, "layer");
  layer.name = text_in(record, "name");
  if (layer.name.empty()) layer.name = fmt::format("layer {}", layer.layer);
  layer.loads = numbers_in(record, "loads");
  layer.second_loads = numbers_in(record, "second_loads");
  for (const json& row : list_in(record, "domain_loads")) {
    layer.domain_loads.emplace_back();
    for (const json& value : row)
      layer.domain_loads.back().push_back(value.is_number() ? value.get<double>() : 0);
  }
  layer.domain_bits = number_in(record, "domain_bits");
  layer.token_bits = number_in(record, "token_bits");
  layer.previous_bits = number_in(record, "previous_bits");
  for (const json& expert : list_in(record, "experts"))
    layer.experts.push_back({count_in(expert, "expert"), read_tokens(list_in(expert, "tokens")),
                             read_tokens(list_in(expert, "previous"))});
  return layer;
}

RoutingUse read_routing(const json& record) {
  RoutingUse routing;
  routing.routing = text_in(record, "routing");
  routing.loss = number_in(record, "loss");
  routing.bits_per_byte = number_in(record, "bits_per_byte");
  routing.domains = read_domains(list_in(record, "domains"));
  for (const json& layer : list_in(record, "layers")) routing.layers.push_back(read_layer(layer));
  return routing;
}

// Layers as metrics.jsonl tells them: a list for first experts, another for second ones.
std::vector<LayerUse> layers_of_metrics(const json& record) {
  std::vector<LayerUse> layers;
  for (const json& one : list_in(record, "experts")) {
    layers.push_back(read_layer(one));
    layers.back().domain_bits = number_in(one, "domain_information_bits");
  }
  const json& seconds = list_in(record, "second_experts");
  for (size_t i = 0; i < std::min(layers.size(), seconds.size()); ++i)
    layers[i].second_loads = numbers_in(seconds[i], "loads");
  return layers;
}

}  // namespace

const RoutingUse* LastValidation::find(const std::string& routing) const {
  for (const RoutingUse& one : routings) {
    if (one.routing == routing) return &one;
  }
  return nullptr;
}

const RoutingUse* LastValidation::main() const {
  const RoutingUse* greedy = find("greedy");
  return greedy != nullptr ? greedy : find("");
}

LastValidation read_validation(const std::filesystem::path& path) {
  const json file = parse_json_or_discard(read_text(path));
  if (file.is_discarded() || text_in(file, "format") != "ballast-validation")
    fail("{} is no validation record of Ballast", path.string());
  if (count_in(file, "version") > 1)
    fail("{} is of version {}, written by a later program; this one reads 1", path.string(),
         count_in(file, "version"));
  LastValidation record;
  record.step = count_in(file, "step");
  record.tokens = number_in(file, "tokens");
  record.floor = number_in(file, "floor_per_token");
  record.whole_split = field_in(file, "whole_split") == true;
  for (const json& routing : list_in(file, "routings"))
    record.routings.push_back(read_routing(routing));
  return record;
}

LastValidation validation_of_metrics(const json& record, const std::string& routing) {
  LastValidation validation;
  validation.step = count_in(record, "step");
  validation.tokens = number_in(record, "valid_tokens");
  validation.floor = number_in(record, "valid_floor");
  RoutingUse& main = validation.routings.emplace_back();
  main.routing = routing;
  main.loss = number_in(record, "valid_loss");
  main.domains = read_domains(list_in(record, "domains"));
  main.layers = layers_of_metrics(record);
  if (const json& other = field_in(record, "other_routing"); other.is_object()) {
    RoutingUse& second = validation.routings.emplace_back();
    second.routing = text_in(other, "routing");
    second.loss = number_in(other, "loss");
    second.layers = layers_of_metrics(other);
  }
  return validation;
}

}  // namespace ballast
