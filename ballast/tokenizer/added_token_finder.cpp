// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/added_token_finder.h"

#include <algorithm>

namespace ballast::tokenizer {

void StringFinder::add(std::string_view content, TokenId id) {
  ids_.emplace(content, id);
  if (first_bytes_.find(content[0]) == std::string::npos) first_bytes_.push_back(content[0]);
  auto& sizes = sizes_[static_cast<uint8_t>(content[0])];
  const auto place = std::lower_bound(sizes.begin(), sizes.end(), content.size(), std::greater<>());
  if (place == sizes.end() || *place != content.size()) sizes.insert(place, content.size());
}

size_t StringFinder::next_candidate(std::string_view text, size_t from) const {
  if (first_bytes_.size() == 1) return text.find(first_bytes_[0], from);  // memchr
  while (from < text.size() && sizes_[static_cast<uint8_t>(text[from])].empty()) ++from;
  return from < text.size() ? from : std::string_view::npos;
}

std::optional<StringFinder::Match> StringFinder::find(std::string_view text, size_t from) const {
  if (ids_.empty()) return std::nullopt;
  while ((from = next_candidate(text, from)) != std::string_view::npos) {
    const std::string_view rest = text.substr(from);
    for (const size_t size : sizes_[static_cast<uint8_t>(rest[0])]) {
      if (size > rest.size()) continue;
      const auto found = ids_.find(rest.substr(0, size));
      if (found != ids_.end()) return Match{from, size, found->second};
    }
    ++from;
  }
  return std::nullopt;
}

AddedTokenFinder::AddedTokenFinder(const BpeVocabulary& vocabulary) {
  for (const AddedToken& token : vocabulary.added) {
    (token.normalized ? normalized_ : plain_).add(vocabulary.tokens[token.id], token.id);
  }
}

}  // namespace ballast::tokenizer
