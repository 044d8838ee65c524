// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

struct Likelihood {
  tokenizer::TokenId token = 0;
  float logprob = 0;  // log p before temperature, top-k and top-p
};

struct WrittenToken {
  Likelihood chosen;
  std::vector<Likelihood> likeliest = {};  // as many as were asked for, falling
};

// How likely `token` is by the logits of its place, and which `likeliest` tokens are the likeliest;
// ties go to the lower id. The same bits for the same logits, on one thread.
// REQUIRES: the token is one of the vocabulary.
WrittenToken likelihood_of(tokenizer::TokenId token, std::span<const float> logits,
                           int64_t likeliest);

}  // namespace ballast::inference
