// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/record/validation_file.h"

namespace ballast::pages {

// How many times its fair share each expert of a layer has, falling. Empty without tokens.
std::vector<double> sorted_shares(const std::vector<double>& loads);

// Whether an expert has at least a tenth of its fair share: fewer tokens say little about it.
// Always true where loads are not known.
bool is_used(const record::LayerUse& layer, size_t expert);

// Entropy of the loads: the bits it takes to say which expert a token goes to.
double load_bits(const std::vector<double>& loads);

// The mean over layers of their sorted shares, as in the paper's figure. Layers with another number
// of experts than the first are left out.
std::vector<double> mean_of_layers(const std::vector<std::vector<double>>& layers);

enum class Choice { kFirst, kSecond };
// The balance of all layers with one routing, of tokens' first experts or of their second ones
// (Sparsely Gated).
std::vector<double> balance_curve(const record::RoutingUse& routing, Choice choice);

// The curves of the paper's figure of expert balance (128 experts), as shares of fair share.
struct PaperCurve {
  std::string name;      // "Switch"
  std::string of_curve;  // what it is to be compared with: "switch", "first", "second", "training",
                         // "greedy"
  std::vector<double> shares;
};
const std::vector<PaperCurve>& paper_balance();

}  // namespace ballast::pages
