// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/completion_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "ballast/studio/serving/http_server.h"

namespace ballast::serving {
namespace {

using Json = nlohmann::ordered_json;
using inference::WrittenToken;
using tokenizer::TokenId;

constexpr int64_t kMostBytesOfToken = 64;  // on average
constexpr float kLeastLogprob = -9999;     // JSON has no infinity

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

}  // namespace

ReadPrompt read_prompt(const CompletionRequest::Prompt& prompt,
                       const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& start,
                       int64_t context) {
  ReadPrompt read;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    // Nobody waits for millions of bytes to be cut into tokens that do not fit anyway.
    if (std::ssize(*text) > kMostBytesOfToken * context) {
      throw Refused(400,
                    fmt::format("the prompt is far longer than the context of {} tokens", context),
                    "prompt");
    }
    read.text = *text;
    tokenizer.encode(*text, read.tokens);
  } else {
    read.tokens = std::get<std::vector<TokenId>>(prompt);
    for (const TokenId token : read.tokens) {
      if (token >= tokenizer.vocabulary_size()) {
        throw Refused(400,
                      fmt::format("the model has no token {}: its vocabulary ends at {}", token,
                                  tokenizer.vocabulary_size() - 1),
                      "prompt");
      }
    }
    read.text = tokenizer.decode(read.tokens);
  }
  const bool has_start = read.tokens.size() >= start.size() &&
                         std::equal(start.begin(), start.end(), read.tokens.begin());
  if (!has_start) read.written = start;
  read.written.insert(read.written.end(), read.tokens.begin(), read.tokens.end());
  if (std::ssize(read.written) > context) {
    throw Refused(
        400,
        fmt::format("this model's context has {} tokens, and the prompt has {}, with what "
                    "stands before a document",
                    context, read.written.size()),
        "prompt");
  }
  return read;
}

CompletionText::CompletionText(const CompletionRequest& request, const ReadPrompt& prompt,
                               const tokenizer::Tokenizer& tokenizer)
    : logprobs_(request.logprobs), tokenizer_(tokenizer), prompt_(prompt), shown_(request.stop) {
  if (request.echo) {
    text_ = replace_invalid_utf8(prompt.text);
  } else {
    characters_ = count_characters(prompt.text);
  }
}

void CompletionText::add_prompt(const std::vector<WrittenToken>& read) {
  const size_t before = prompt_.written.size() - prompt_.tokens.size();
  for (size_t i = 0; i < prompt_.tokens.size(); ++i) {
    const size_t place = before + i;  // in what is written; of its first token nothing is known
    WrittenToken token{.chosen = {.token = prompt_.tokens[i]}};
    if (place > 0) token = read[place - 1];
    keep(token, place > 0, 0);
    ready_.push_back(std::move(held_.back()));
    held_.pop_back();
  }
}

void CompletionText::keep(const WrittenToken& token, bool has_logprob, size_t begin) {
  held_.push_back({token, has_logprob, begin, characters_});
  characters_ += count_characters(bytes_of(token.chosen.token));
}

bool CompletionText::add(const WrittenToken& token) {
  ++tokens_;
  const std::string_view bytes = bytes_of(token.chosen.token);
  if (logprobs_ >= 0) keep(token, true, bytes_);
  bytes_ += bytes.size();
  text_ += shown_.add(bytes);
  release();
  return !shown_.stopped();
}

void CompletionText::release() {
  while (!held_.empty() && held_.front().begin < shown_.released()) {
    ready_.push_back(std::move(held_.front()));
    held_.pop_front();
  }
}

void CompletionText::end(inference::WritingEnd end) {
  finish_reason_ = end == inference::WritingEnd::kLength && !shown_.stopped() ? "length" : "stop";
  if (shown_.stopped()) return held_.clear();
  text_ += shown_.rest();
  std::ranges::move(held_, std::back_inserter(ready_));
  held_.clear();
}

std::string_view CompletionText::bytes_of(TokenId token) const {
  // A model's vocabulary may be padded beyond its tokenizer's.
  return token < tokenizer_.vocabulary_size() ? tokenizer_.token_bytes(token) : std::string_view();
}

// As OpenAI's servers name tokens that are no whole characters: no two have the same name then.
std::string CompletionText::name_of(TokenId token) const {
  if (token >= tokenizer_.vocabulary_size()) return fmt::format("token:{}", token);
  const std::string bytes(tokenizer_.token_bytes(token));
  if (replace_invalid_utf8(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

Json CompletionText::logprobs() {
  Json tokens = Json::array(), values = Json::array(), offsets = Json::array();
  Json likeliest = Json::array();
  for (const Told& told : ready_) {
    const auto value = [](const inference::Likelihood& one) {
      return std::max(one.logprob, kLeastLogprob);
    };
    tokens.push_back(name_of(told.token.chosen.token));
    values.push_back(told.has_logprob ? Json(value(told.token.chosen)) : Json());
    offsets.push_back(told.character);
    Json top = Json::object();
    for (const inference::Likelihood& one : told.token.likeliest)
      top[name_of(one.token)] = value(one);
    if (told.has_logprob) top[name_of(told.token.chosen.token)] = value(told.token.chosen);
    likeliest.push_back(told.has_logprob ? top : Json());
  }
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", logprobs_ > 0 ? likeliest : Json()},
          {"text_offset", offsets}};
}

Json CompletionText::take(int64_t index) {
  Json choice = {{"text", std::exchange(text_, {})},
                 {"index", index},
                 {"logprobs", logprobs_ >= 0 ? logprobs() : Json()},
                 {"finish_reason", finish_reason_ ? Json(*finish_reason_) : Json()}};
  ready_.clear();
  return choice;
}

}  // namespace ballast::serving
