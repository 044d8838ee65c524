// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/inspector_json.h"

#include <fmt/format.h>

#include <cmath>

#include "ballast/config/system_words.h"
#include "ballast/system/utf8.h"
#include "ballast/tokenizer/token_text.h"

namespace ballast::serving {
namespace {

// Five digits are more than a page shows, and a third of the bytes of all.
Json rounded(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values)
    list.push_back(std::isfinite(value) ? Json(std::round(value * 1e5) / 1e5) : Json());
  return list;
}

}  // namespace

HttpResponse json_answer(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

std::string token_for_page(const tokenizer::Tokenizer* tokenizer, int64_t token) {
  const auto in_words = tokenizer::token_text(tokenizer, token);
  if (!in_words) return fmt::format("#{}", token);
  const std::string bytes(tokenizer->token_bytes(static_cast<tokenizer::TokenId>(token)));
  return replace_invalid_utf8(bytes) == bytes ? bytes : *in_words;
}

std::string text_for_page(const tokenizer::Tokenizer* tokenizer,
                          const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    text += tokenizer == nullptr
                ? fmt::format("#{} ", token)
                : std::string(tokenizer->token_bytes(static_cast<tokenizer::TokenId>(token)));
  }
  return replace_invalid_utf8(text);
}

Json prices_json(const experts::ExpertLayer& layer) {
  const experts::PriceAverage* const prices = layer.router().prices();
  if (prices == nullptr) return nullptr;
  const auto* const first = prices->value().const_data_ptr<double>();
  return rounded({first, first + prices->value().numel()});
}

Json inspection_json(const loading::LoadedModel& loaded, const inference::Inspection& found) {
  Json texts = Json::array(), layers = Json::array();
  for (const tokenizer::TokenId token : found.tokens)
    texts.push_back(token_for_page(loaded.tokenizer.get(), token));
  const std::vector<std::string> names = config::layers_in_words(loaded.config);
  for (size_t i = 0; i < found.layers.size(); ++i) {
    const inference::InspectedLayer& layer = found.layers[i];
    layers.push_back({{"layer", layer.layer},
                      {"name", names[i]},
                      {"experts", loaded.config.experts.count},
                      {"prices", prices_json(*loaded.model->expert_layers()[i])},
                      {"expert", layer.expert},
                      {"gate", rounded(layer.gate)},
                      {"second", layer.second},
                      {"best", layer.best},
                      {"score", rounded(layer.score)},
                      {"second_score", rounded(layer.second_score)},
                      {"best_score", rounded(layer.best_score)}});
  }
  return {{"tokens", {{"id", found.tokens}, {"text", texts}, {"loss", rounded(found.losses)}}},
          {"layers", layers}};
}

}  // namespace ballast::serving
