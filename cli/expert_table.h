// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/inference/expert_use.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::cli {

// What the experts of each layer got, for a terminal of 100 columns: a heading for each layer
// with its balance and what domains and tokens tell of experts, then a line for each expert with
// its load, its tokens' domains and the tokens it got most often. Of more than 20 experts the 16
// busiest and the 4 least busy. names[i]: of the layer of uses[i], "Switch layer 6". Without a
// tokenizer (null) tokens are numbers.
std::string expert_table(const std::vector<ExpertUse>& uses, const std::vector<std::string>& names,
                         const Tokenizer* tokenizer);

// Experts that got a token.
int64_t experts_in_use(const ExpertUse& use);

}  // namespace ballast::cli
