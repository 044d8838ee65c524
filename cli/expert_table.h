// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/inference/evaluate.h"
#include "ballast/inference/expert_use.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::cli {

// What the experts of each layer got, for a terminal of 100 columns: a heading for each layer
// with its balance and what domains and tokens tell of experts, then a line for each expert with
// its load, its tokens' domains and the tokens it got most often; where previous tokens were
// counted, a second line with those that stood before, as in the paper's table. Of more than 20
// experts the 16 busiest and the 4 least busy. names[i]: of the i-th layer, "Switch layer 6".
// Without a tokenizer (null) tokens are numbers.
std::string expert_table(const inference::Evaluation& evaluation,
                         const std::vector<std::string>& names,
                         const tokenizer::Tokenizer* tokenizer);

// Experts that got a token.
int64_t experts_in_use(const inference::ExpertUse& use);

}  // namespace ballast::cli
