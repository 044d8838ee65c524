// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/report/validation_file.h"

namespace ballast {

// How many times its fair share each expert of a layer has, falling. Empty without tokens.
std::vector<double> sorted_shares(const std::vector<double>& loads);

// Whether an expert has a tenth of its fair share at least: what fewer tokens tell of it is chance.
// Where loads are not known, all have.
bool is_used(const LayerUse& layer, size_t expert);

// Bits that say which expert a token goes to, where nothing but the loads is known.
double load_bits(const std::vector<double>& loads);

// The mean over layers of their sorted shares, as in the paper's figure. Layers with another number
// of experts than the first are left out.
std::vector<double> mean_of_layers(const std::vector<std::vector<double>>& layers);

enum class Choice { kFirst, kSecond };
// Of all layers of one routing: of tokens' first experts or of their second ones (Sparsely Gated).
std::vector<double> balance_curve(const RoutingUse& routing, Choice choice);

// The curves of the paper's figure of expert balance (128 experts), as shares of fair share.
struct PaperCurve {
  std::string name;      // "Switch (paper)"
  std::string of_curve;  // what it is to be compared with: "switch", "first", "second", "training",
                         // "greedy"
  std::vector<double> shares;
};
const std::vector<PaperCurve>& paper_balance();

}  // namespace ballast
