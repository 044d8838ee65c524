// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/specialisation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ballast/studio/pages/balance.h"

namespace ballast::pages {
namespace {

double bits_of(const std::vector<record::TokenUse>& tokens) {
  double sum = 0, count = 0;
  for (const record::TokenUse& token : tokens) {
    if (!(token.count > 0) || !(token.lift > 0)) continue;
    sum += token.count * std::log2(token.lift);
    count += token.count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace

double specialisation(const record::ExpertTokens& expert) {
  return std::max(bits_of(expert.tokens), bits_of(expert.previous));
}

std::vector<const record::ExpertTokens*> by_specialisation(const record::LayerUse& layer) {
  std::vector<const record::ExpertTokens*> experts;
  for (const record::ExpertTokens& expert : layer.experts) experts.push_back(&expert);
  std::ranges::stable_sort(experts, std::greater(), [&](const record::ExpertTokens* expert) {
    return std::make_pair(is_used(layer, static_cast<size_t>(expert->expert)),
                          specialisation(*expert));
  });
  return experts;
}

std::string with_visible_spaces(const std::string& token) {
  std::string text;
  for (const char letter : token) {
    if (letter == ' ')
      text += "\u2423";
    else
      text += letter;
  }
  return text;
}

}  // namespace ballast::pages
