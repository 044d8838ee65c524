// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/record/validation_file.h"

namespace ballast::pages {

// How much an expert's most frequent tokens tell of it: the mean of log2(lift) over their
// occurrences, of current or of previous tokens, whichever is more. 0 without tokens.
double specialisation(const record::ExpertTokens& expert);

// The experts of a layer, the most specialised first; those that are hardly used (balance.h) last.
std::vector<const record::ExpertTokens*> by_specialisation(const record::LayerUse& layer);

// A token with its spaces as U+2423.
std::string with_visible_spaces(const std::string& token);

}  // namespace ballast::pages
