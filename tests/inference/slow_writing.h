// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "ballast/model/language_model.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::test {

struct SlowText {
  std::vector<tokenizer::TokenId> tokens;  // the likeliest
  std::vector<at::Tensor> logprobs;        // [V] of each place, in double
};

// Continues a text without a cache: the whole of it through the model for every token.
inline SlowText write_slowly(const model::LanguageModel& model,
                             const std::vector<tokenizer::TokenId>& begin, int64_t count,
                             const experts::Routing& routing = {}) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> text(begin.begin(), begin.end());
  SlowText written;
  for (int64_t i = 0; i < count; ++i) {
    // A text that fills the context is cut to its newer half, then grows again.
    if (std::ssize(text) > model.config().context)
      text.erase(text.begin(), text.end() - model.config().context / 2);
    const at::Tensor tokens = at::tensor(text, at::kLong).unsqueeze(0);
    const at::Tensor logits = model.logits(model.forward(tokens, routing))[-1];
    text.push_back(logits.argmax().item<int64_t>());
    written.tokens.push_back(static_cast<tokenizer::TokenId>(text.back()));
    written.logprobs.push_back(logits.to(at::kDouble).log_softmax(-1));
  }
  return written;
}

}  // namespace ballast::test
