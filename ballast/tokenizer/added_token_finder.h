// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/tokenizer/bpe_vocabulary.h"
#include "ballast/tokenizer/normalizer.h"

namespace ballast::tokenizer {

// Finds any of a set of strings in text: the leftmost match, and of those the longest.
class StringFinder {
 public:
  struct Match {
    size_t begin = 0, size = 0;
    AddedToken token;
  };

  // REQUIRES: content is not empty, and was not added before.
  void add(std::string_view content, const AddedToken& token);
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  size_t next_candidate(std::string_view text, size_t from) const;

  std::unordered_map<std::string, AddedToken, Hash, std::equal_to<>> tokens_;
  std::array<std::vector<size_t>, 256> sizes_;  // by first byte: sizes that occur, largest first
  // By first and second byte: whether some string starts so, or has no second one.
  std::vector<bool> starts_ = std::vector<bool>(1 << 16);
  std::string first_bytes_;
};

// Cuts text at added tokens, as Hugging Face does: first at those that are not normalized, then,
// in what is left and has been normalized, at the others.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(const BpeVocabulary& vocabulary);

  // Call on_text(stretch) and on_token(id) in order; stretches are not empty.
  template <typename OnText, typename OnToken>
  void split_raw(std::string_view text, const OnText& on_text, const OnToken& on_token) const {
    split(raw_, text, on_text, on_token);
  }
  template <typename OnText, typename OnToken>
  void split_normalized(std::string_view text, const OnText& on_text,
                        const OnToken& on_token) const {
    split(normalized_, text, on_text, on_token);
  }

 private:
  template <typename OnText, typename OnToken>
  static void split(const StringFinder& finder, std::string_view text, const OnText& on_text,
                    const OnToken& on_token) {
    size_t begin = 0, searched = 0;
    while (const auto match = finder.find(text, searched)) {
      searched = match->begin + match->size;
      if (match->token.single_word && !is_single_word(text, *match)) continue;
      const size_t start =
          match->token.left_strip ? std::max(begin, space_start(text, match->begin)) : match->begin;
      if (start > begin) on_text(text.substr(begin, start - begin));
      on_token(match->token.id);
      begin = match->token.right_strip ? space_end(text, searched) : searched;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

  static bool is_single_word(std::string_view text, const StringFinder::Match& match);
  // Where the white space that ends at `end` starts, and where that which starts at `begin` ends.
  static size_t space_start(std::string_view text, size_t end);
  static size_t space_end(std::string_view text, size_t begin);

  StringFinder raw_, normalized_;
};

}  // namespace ballast::tokenizer
