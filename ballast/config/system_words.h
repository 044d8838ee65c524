// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/config/config.h"

namespace ballast::config {

// What the paper would call a model: "dense, model parallel x2", "BASE x3", "BASE x1, large
// experts", "BASE Top", "Switch in every other feed-forward".
std::string system_in_words(const Config& config);
// One of its layers of experts: "BASE layer", "MoE layer", "Switch layer".
std::string layer_in_words(const ExpertsConfig& experts);
// All of them: "BASE layer 8", "BASE layer 16".
std::vector<std::string> layers_in_words(const Config& config);
// Where those stand: "after blocks 8 and 16 of 24", "in place of every other of 24 feed-forwards".
// REQUIRES: there are some.
std::string places_in_words(const Config& config);

}  // namespace ballast::config
