// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/validation_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ballast/record/json_fields.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast::record {
namespace {

using nlohmann::json;                 // read
using Json = nlohmann::ordered_json;  // written; numbers that are not finite become null

constexpr std::string_view kFormat = "ballast-validation";
constexpr int64_t kVersion = 1;

Json whole(double count) { return std::isfinite(count) ? Json(std::llround(count)) : Json(); }

Json whole(const std::vector<double>& counts) {
  Json list = Json::array();
  for (const double count : counts) list.push_back(whole(count));
  return list;
}

Json tokens_json(const std::vector<TokenUse>& tokens) {
  Json list = Json::array();
  for (const TokenUse& token : tokens) {
    list.push_back({{"id", token.id},
                    {"text", token.text},
                    {"count", whole(token.count)},
                    {"lift", token.lift}});
  }
  return list;
}

// What a layer's experts got, beyond how much.
void add_uses(const LayerUse& layer, Json& out) {
  out["domain_loads"] = Json::array();
  for (const std::vector<double>& loads : layer.domain_loads)
    out["domain_loads"].push_back(whole(loads));
  out["domain_bits"] = layer.domain_bits;
  out["token_bits"] = layer.token_bits;
  out["previous_bits"] = layer.previous_bits;
  out["experts"] = Json::array();
  for (const ExpertTokens& expert : layer.experts) {
    out["experts"].push_back({{"expert", expert.expert},
                              {"tokens", tokens_json(expert.tokens)},
                              {"previous", tokens_json(expert.previous)}});
  }
}

Json routing_json(const RoutingUse& routing) {
  const bool sees_the_future = routing.routing == "balanced";
  Json out = {{"routing", routing.routing.empty() ? Json() : Json(routing.routing)},
              {"loss", routing.loss},
              {"perplexity", routing.perplexity}};
  if (!sees_the_future) {
    out["bits_per_byte"] = routing.bits_per_byte;
    out["domains"] = domains_json(routing.domains);
  }
  out["layers"] = Json::array();
  for (const LayerUse& use : routing.layers) {
    Json layer = {{"layer", use.layer}, {"name", use.name}, {"loads", whole(use.loads)}};
    if (!use.second_loads.empty()) layer["second_loads"] = whole(use.second_loads);
    layer["first_direction_share"] = use.first_direction_share;
    if (!sees_the_future) add_uses(use, layer);
    out["layers"].push_back(std::move(layer));
  }
  return out;
}

std::vector<TokenUse> read_tokens(const json& list) {
  std::vector<TokenUse> tokens;
  for (const json& token : list)
    tokens.push_back({text_in(token, "text"), number_in(token, "count"), number_in(token, "lift"),
                      count_in(token, "id")});
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
  layer.first_direction_share = number_in(record, "first_direction_share");
  for (const json& row : list_in(record, "domain_loads")) {
    layer.domain_loads.emplace_back();
    for (const json& value : row)
      layer.domain_loads.back().push_back(value.is_number() ? value.get<double>() : 0);
  }
  layer.domain_bits = number_in(record, "domain_bits");
  layer.token_bits = number_in(record, "token_bits");
  layer.previous_bits = number_in(record, "previous_bits");
  layer.busiest_share = number_in(record, "busiest_share");
  for (const json& expert : list_in(record, "experts"))
    layer.experts.push_back({count_in(expert, "expert"), read_tokens(list_in(expert, "tokens")),
                             read_tokens(list_in(expert, "previous"))});
  return layer;
}

RoutingUse read_routing(const json& record) {
  RoutingUse routing{.routing = text_in(record, "routing"),
                     .loss = number_in(record, "loss"),
                     .perplexity = number_in(record, "perplexity"),
                     .bits_per_byte = number_in(record, "bits_per_byte"),
                     .domains = read_domains(list_in(record, "domains"))};
  for (const json& layer : list_in(record, "layers")) routing.layers.push_back(read_layer(layer));
  return routing;
}

// What two files call what they tell of a validation as a whole.
struct ExtentKeys {
  const char *tokens, *windows, *floor;
};

LastValidation read_extent(const json& record, const ExtentKeys& keys) {
  return {.step = count_in(record, "step"),
          .tokens = number_in(record, keys.tokens),
          .windows = number_in(record, keys.windows),
          .split_tokens = number_in(record, "split_tokens"),
          .split_windows = number_in(record, "split_windows"),
          .floor = number_in(record, keys.floor),
          .whole_split = field_in(record, "whole_split") == true};
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
  if (greedy != nullptr || routings.empty()) return greedy;
  return &routings.front();  // a dense model's; of a run that is validated with priced routing
}

void write_validation(const std::filesystem::path& path, const LastValidation& validation) {
  Json out = {{"format", kFormat},
              {"version", kVersion},
              {"step", validation.step},
              {"tokens", whole(validation.tokens)},
              {"windows", whole(validation.windows)},
              {"split_tokens", whole(validation.split_tokens)},
              {"split_windows", whole(validation.split_windows)},
              {"whole_split", validation.whole_split},
              {"system", validation.system},
              {"floor_per_token", validation.floor},
              {"routings", Json::array()}};
  for (const RoutingUse& routing : validation.routings)
    out["routings"].push_back(routing_json(routing));
  // Names of domains are those of files, which may not be UTF-8.
  write_text_atomically(path, out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool is_validation_file(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path) &&
         text_in(parse_json_or_discard(read_text(path)), "format") == kFormat;
}

Json domains_json(const std::vector<DomainResult>& domains) {
  Json list = Json::array();
  for (const DomainResult& domain : domains) {
    list.push_back(
        {{"name", domain.name}, {"tokens", whole(domain.tokens)}, {"loss", domain.loss}});
  }
  return list;
}

LastValidation read_validation(const std::filesystem::path& path) {
  const json file = parse_json_or_discard(read_text(path));
  if (text_in(file, "format") != kFormat)
    fail("{} is no validation record of Ballast", path.string());
  if (count_in(file, "version") > kVersion)
    fail("{} is of version {}, written by a later program; this one reads {}", path.string(),
         count_in(file, "version"), kVersion);
  LastValidation record =
      read_extent(file, {.tokens = "tokens", .windows = "windows", .floor = "floor_per_token"});
  record.system = text_in(file, "system");
  for (const json& routing : list_in(file, "routings"))
    record.routings.push_back(read_routing(routing));
  return record;
}

LastValidation validation_of_metrics(const json& record) {
  LastValidation validation = read_extent(
      record, {.tokens = "valid_tokens", .windows = "valid_windows", .floor = "valid_floor"});
  RoutingUse& main = validation.routings.emplace_back();
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

}  // namespace ballast::record
