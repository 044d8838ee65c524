// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/completion_request.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ballast/config/nearest.h"
#include "ballast/studio/serving/http_server.h"
#include "ballast/system/json.h"

namespace ballast::serving {
namespace {

using nlohmann::json;
using tokenizer::TokenId;

constexpr size_t kMaxTexts = 1024;  // of a request
constexpr size_t kMaxStops = 4, kMaxStopBytes = 1024;
constexpr size_t kLongestKey = 64;
constexpr int64_t kMaxLogprobs = 100;
constexpr int64_t kMaxTokens = 1'000'000;

template <typename... Args>
[[noreturn]] void refuse(const std::string& key, fmt::format_string<Args...> message,
                         Args&&... args) {
  throw Refused(400, fmt::format(message, std::forward<Args>(args)...), key);
}

// Reads the keys of an object, and knows which there were. A key that is null is as if not given.
class Keys {
 public:
  explicit Keys(const json& object) : object_(object) {}

  const json* find(const std::string& key) {
    known_.push_back(key);
    const auto value = object_.find(key);
    return value == object_.end() || value->is_null() ? nullptr : &*value;
  }
  void read(const std::string& key, bool& to) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse(key, "{} must be true or false", key);
    to = value->get<bool>();
  }
  void read(const std::string& key, std::string& to) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) refuse(key, "{} must be a text", key);
    to = value->get<std::string>();
  }
  void read(const std::string& key, int64_t& to, int64_t least, int64_t most) {
    const json* value = find(key);
    if (value == nullptr) return;
    const bool fits = value->is_number_integer() && in_range(*value, least, most);
    if (!fits) refuse(key, "{} must be a whole number from {} to {}", key, least, most);
    to = value->get<int64_t>();
  }
  void read(const std::string& key, double& to, double least, double most) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
      refuse(key, "{} must be a number from {} to {}", key, least, most);
    to = value->get<double>();
  }
  // Of what may be there if it changes nothing.
  void allow_only(const std::string& key, const json& without_effect) {
    const json* value = find(key);
    if (value != nullptr && *value != without_effect)
      refuse(key, "{} is not supported: leave it out", key);
  }
  void refuse_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::count(known_, key) == 0) refuse_key(key);
    }
  }

 private:
  // A long key is not compared with ours: that takes time by its square.
  void refuse_key(const std::string& key) const {
    const std::string cut = key.substr(0, kLongestKey);
    refuse(cut, "there is no parameter {}{}", cut,
           key.size() > kLongestKey ? "" : config::nearest_is(key, known_));
  }
  static bool in_range(const json& value, int64_t least, int64_t most) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return false;
    return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  }

  const json& object_;
  std::vector<std::string> known_;
};

bool is_token(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<TokenId>::max();
}

std::vector<TokenId> tokens_of(const json& list) {
  std::vector<TokenId> tokens;
  for (const json& token : list) {
    if (!is_token(token))
      refuse("prompt", "prompt must be a text, token ids, or a list of texts or of lists of ids");
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

std::vector<CompletionRequest::Prompt> prompts_of(const json* prompt) {
  if (prompt == nullptr) return {std::string()};
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array() || prompt->empty())
    refuse("prompt", "prompt must be a text, token ids, or a list of texts or of lists of ids");
  if (is_token(prompt->front())) return {tokens_of(*prompt)};
  std::vector<CompletionRequest::Prompt> prompts;
  for (const json& one : *prompt) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      prompts.emplace_back(tokens_of(one));
    } else {
      refuse("prompt", "prompt must be a text, token ids, or a list of texts or of lists of ids");
    }
  }
  return prompts;
}

std::vector<std::string> stops_of(const json* stop) {
  if (stop == nullptr) return {};
  std::vector<std::string> stops;
  const json list = stop->is_array() ? *stop : json::array({*stop});
  for (const json& one : list) {
    if (!one.is_string() || one.get<std::string>().empty())
      refuse("stop", "stop must be a text that is not empty, or a list of such texts");
    stops.push_back(one.get<std::string>());
    if (stops.back().size() > kMaxStopBytes)
      refuse("stop", "a stop text has {} bytes at most", kMaxStopBytes);
  }
  if (stops.size() > kMaxStops) refuse("stop", "stop has {} texts at most", kMaxStops);
  return stops;
}

void read_stream_options(const json* options, CompletionRequest& request) {
  if (options == nullptr) return;
  if (!options->is_object()) refuse("stream_options", "stream_options must be an object");
  if (!request.stream) refuse("stream_options", "stream_options is for \"stream\": true");
  Keys keys(*options);
  keys.read("include_usage", request.include_usage);
  keys.allow_only("include_obfuscation", false);
  keys.refuse_others();
}

}  // namespace

CompletionRequest read_completion_request(const std::string& body) {
  json object;
  try {
    object = parse_json(body);
  } catch (const BadJson& error) {
    throw Refused(400, fmt::format("the body is not JSON: {}", error.what()));
  }
  if (!object.is_object()) throw Refused(400, "the body must be a JSON object");
  Keys keys(object);
  CompletionRequest request;
  keys.read("model", request.model);
  request.prompts = prompts_of(keys.find("prompt"));
  keys.read("n", request.n, 1, static_cast<int64_t>(kMaxTexts));
  keys.read("max_tokens", request.max_tokens, 0, kMaxTokens);
  keys.read("temperature", request.sampling.temperature, 0, 1e6);
  keys.read("top_p", request.sampling.top_p, 0, 1);
  keys.read("top_k", request.sampling.top_k, 0, std::numeric_limits<int64_t>::max());
  keys.read("logprobs", request.logprobs, 0, kMaxLogprobs);
  if (int64_t seed = 0; keys.find("seed") != nullptr) {
    constexpr auto kLimits = std::numeric_limits<int64_t>();
    keys.read("seed", seed, kLimits.min(), kLimits.max());
    request.seed = static_cast<uint64_t>(seed);
  }
  request.stop = stops_of(keys.find("stop"));
  keys.read("echo", request.echo);
  keys.read("stream", request.stream);
  keys.read("ignore_eos", request.ignore_eos);
  read_stream_options(keys.find("stream_options"), request);
  keys.allow_only("best_of", request.n);
  keys.allow_only("presence_penalty", 0);
  keys.allow_only("frequency_penalty", 0);
  keys.allow_only("suffix", "");
  keys.allow_only("logit_bias", json::object());
  std::string ignored;
  keys.read("user", ignored);
  keys.refuse_others();
  if (request.prompts.size() * static_cast<size_t>(request.n) > kMaxTexts)
    refuse("n", "a request has {} texts at most, prompts times n", kMaxTexts);
  return request;
}

}  // namespace ballast::serving
