// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ballast/system/random.h"
#include "ballast/text/grammar.h"

namespace ballast::text {

// -log of the probability weights[choice] / sum(weights).
double choice_nats(std::span<const uint32_t> weights, size_t choice);

struct SampledText {
  std::string text;
  double nats = 0;  // -log p of the choices made
};

// A text drawn from the grammar's law.
SampledText sample_text(Grammar grammar, RandomStream random);

struct Derivations {
  size_t count = 0;  // ways to make the choices that give exactly the text
  double nats = 0;   // -log p of the last one found
};

// All derivations of a text, or the first `limit`, by search with backtracking. The grammar is run
// again from the start for every alternative: about a millisecond for a text of the built-in
// corpus.
Derivations find_derivations(Grammar grammar, std::string_view text, size_t limit);

}  // namespace ballast::text
