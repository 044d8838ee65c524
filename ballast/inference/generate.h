// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ballast/inference/sampling.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

struct GenerationOptions {
  int64_t max_tokens = 200;
  SamplingOptions sampling = {};
  uint64_t seed = 1;
  experts::RoutingMode routing =
      experts::RoutingMode::kGreedy;  // greedy or priced: a token must not see the others
  bool stop_at_end_of_text = true;
  // What stands before each prompt (tokenizer::start_of_text); empty: end-of-text.
  std::vector<tokenizer::TokenId> start = {};
};

// Called for each new token with the prompt's index; returning false stops all prompts.
using TokenCallback = std::function<bool(size_t prompt, tokenizer::TokenId token)>;

// Continues each prompt (token ids; an empty one starts a document), all in one batch with a
// key-value cache; token i of prompt p depends on (seed, p, i) and the prompt alone. When a text
// fills the model's context, its older half is forgotten. Returns the new tokens of each prompt.
// Collective: with several workers all give the same arguments, and get what worker 0 writes.
// `on_token` is given on all of them or none; where it returns false on any, all stop.
std::vector<std::vector<tokenizer::TokenId>> generate(
    const model::LanguageModel& model, const model::ComputePlace& place,
    tokenizer::TokenId end_of_text, const std::vector<std::vector<tokenizer::TokenId>>& prompts,
    const GenerationOptions& options, const TokenCallback& on_token = {});

}  // namespace ballast::inference
