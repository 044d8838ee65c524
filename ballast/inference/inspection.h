// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/experts/routing.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

// What one layer of experts did with a text. Vectors have an entry for each token of it.
struct InspectedLayer {
  int64_t layer = 0;  // blocks before it
  std::vector<int64_t> expert;
  // Where tokens go to several experts, the second of them; otherwise the best of the others, by
  // what was compared. -1: there is one expert.
  std::vector<int64_t> second;
  std::vector<int64_t> best;  // by score alone, whatever the prices and the others are
  // Of these three, before prices.
  std::vector<double> score, second_score, best_score;
  // What the token takes of its expert's output. NaN where the pass does not tell: balanced routing
  // to more than two experts.
  std::vector<double> gate;
};

struct Inspection {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<double> losses;  // -log p of each, given what stands before it, in nats
  std::vector<InspectedLayer> layers;
};

inline constexpr size_t kMostInspectedTokens = 4096;

// The tokens of a text. UserError: it has none, or more than kMostInspectedTokens; there is no
// tokenizer.
std::vector<tokenizer::TokenId> tokens_to_inspect(const loading::LoadedModel& loaded,
                                                  const std::string& text);

// Passes a text through the model, after what stands before each text that it was trained on. A
// text that is longer than the context is read in windows that overlap by half: each token then has
// at least half a context before it. Balanced routing balances the text's tokens, all together.
// REQUIRES: at least one token; one worker.
Inspection inspect(const loading::LoadedModel& loaded, std::vector<tokenizer::TokenId> tokens,
                   experts::RoutingMode routing);

}  // namespace ballast::inference
