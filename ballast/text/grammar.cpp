// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/grammar.h"

#include <stdexcept>
#include <utility>

namespace ballast {

Words::Words(std::vector<std::string_view> words, std::vector<uint32_t> weights)
    : words_(std::move(words)), weights_(std::move(weights)) {
  if (words_.empty() || words_.size() > 64) throw std::logic_error("Words: want 1 to 64 words");
}

Words Words::uniform(std::initializer_list<std::string_view> words) {
  return {words, std::vector<uint32_t>(words.size(), 1)};
}

Words Words::zipf(std::initializer_list<std::string_view> words) {
  std::vector<uint32_t> weights;
  for (uint32_t i = 0; i < words.size(); ++i) weights.push_back(20000 / (i + 8));
  return {words, weights};
}

}  // namespace ballast
