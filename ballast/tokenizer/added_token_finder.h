// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// Finds any of a set of strings in text: the leftmost match, and of those the longest.
class StringFinder {
 public:
  struct Match {
    size_t begin = 0, size = 0;
    TokenId id = 0;
  };

  void add(std::string_view content, TokenId id);  // REQUIRES: content is not empty
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  size_t next_candidate(std::string_view text, size_t from) const;

  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::array<std::vector<size_t>, 256> sizes_;  // by first byte: sizes that occur, largest first
  std::string first_bytes_;
};

// Cuts text at added tokens, as Hugging Face does.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(const BpeVocabulary& vocabulary);

  // Calls on_text(stretch) and on_token(id) in order; stretches are not empty.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const {
    split_once(
        plain_, text,
        [&](std::string_view stretch) { split_once(normalized_, stretch, on_text, on_token); },
        on_token);
  }

 private:
  template <typename OnText, typename OnToken>
  static void split_once(const StringFinder& finder, std::string_view text, const OnText& on_text,
                         const OnToken& on_token) {
    size_t begin = 0;
    while (const auto match = finder.find(text, begin)) {
      if (match->begin > begin) on_text(text.substr(begin, match->begin - begin));
      on_token(match->id);
      begin = match->begin + match->size;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

  StringFinder plain_, normalized_;
};

}  // namespace ballast::tokenizer
