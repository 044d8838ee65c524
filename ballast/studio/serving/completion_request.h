// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ballast/inference/sampling.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::serving {

// What /v1/completions is asked. docs/serve.md has the table of its keys.
struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<tokenizer::TokenId>>;
  std::string model;  // empty: not said
  std::vector<Prompt> prompts;
  int64_t n = 1;  // continuations of each prompt
  int64_t max_tokens = 16;
  inference::SamplingOptions sampling = {};
  std::optional<uint64_t> seed = {};
  int64_t logprobs = -1;  // likeliest tokens that are told at each place; -1: no logprobs at all
  std::vector<std::string> stop = {};
  bool echo = false, stream = false, include_usage = false, ignore_eos = false;
};

// From a request's body. Refused, with 400 and the key: it is not JSON, a key is unknown or cannot
// be obeyed, a value is out of range.
CompletionRequest read_completion_request(const std::string& body);

}  // namespace ballast::serving
