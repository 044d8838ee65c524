// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/added_token_finder.h"

#include <algorithm>

#include "ballast/tokenizer/code_points.h"
#include "ballast/tokenizer/pretokenizer.h"
#include "ballast/tokenizer/utf8_character.h"

namespace ballast::tokenizer {
namespace {

bool is_space(uint32_t code_point) {
  return code_point != kNoCodePoint && character_class(code_point) == CharacterClass::kSpace;
}

bool is_word(uint32_t code_point) {
  return code_point != kNoCodePoint && is_word_character(code_point);
}

// The character that ends where the text does. REQUIRES: it is not empty.
Utf8Character last_character(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (size_t size = 2; size <= std::min<size_t>(4, text.size()); ++size) {
    const Utf8Character c = read_utf8(end - size, end);
    if (c.size == size) return c;
  }
  return read_utf8(end - 1, end);
}

}  // namespace

void StringFinder::add(std::string_view content, const AddedToken& token) {
  tokens_.emplace(content, token);
  if (first_bytes_.find(content[0]) == std::string::npos) first_bytes_.push_back(content[0]);
  auto& sizes = sizes_[static_cast<uint8_t>(content[0])];
  const auto place = std::lower_bound(sizes.begin(), sizes.end(), content.size(), std::greater<>());
  if (place == sizes.end() || *place != content.size()) sizes.insert(place, content.size());
  const auto start = starts_.begin() + (static_cast<uint8_t>(content[0]) << 8);
  if (content.size() == 1) {
    std::fill(start, start + 256, true);
  } else {
    start[static_cast<uint8_t>(content[1])] = true;
  }
}

size_t StringFinder::next_candidate(std::string_view text, size_t from) const {
  const bool one_byte = first_bytes_.size() == 1;
  for (;; ++from) {
    if (one_byte) from = std::min(text.find(first_bytes_[0], from), text.size());  // memchr
    if (from >= text.size()) return std::string_view::npos;
    const auto first = static_cast<uint8_t>(text[from]);
    if (sizes_[first].empty()) continue;
    if (from + 1 == text.size()) return from;
    if (starts_[first << 8 | static_cast<uint8_t>(text[from + 1])]) return from;
  }
}

std::optional<StringFinder::Match> StringFinder::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  while ((from = next_candidate(text, from)) != std::string_view::npos) {
    const std::string_view rest = text.substr(from);
    for (const size_t size : sizes_[static_cast<uint8_t>(rest[0])]) {
      if (size > rest.size()) continue;
      const auto found = tokens_.find(rest.substr(0, size));
      if (found != tokens_.end()) return Match{from, size, found->second};
    }
    ++from;
  }
  return std::nullopt;
}

AddedTokenFinder::AddedTokenFinder(const BpeVocabulary& vocabulary) {
  const Normalizer normalizer(vocabulary.pipeline.normalizer);
  Normalizer::Scratch scratch;
  for (const AddedToken& token : vocabulary.added) {
    const std::string& content = vocabulary.tokens[token.id];
    if (token.normalized) {
      normalized_.add(normalizer.apply(content, true, scratch), token);
    } else {
      raw_.add(content, token);
    }
  }
}

bool AddedTokenFinder::is_single_word(std::string_view text, const StringFinder::Match& match) {
  const std::string_view before = text.substr(0, match.begin);
  const std::string_view after = text.substr(match.begin + match.size);
  if (!before.empty() && is_word(last_character(before).code_point)) return false;
  return after.empty() || !is_word(read_utf8(after.data(), after.data() + after.size()).code_point);
}

size_t AddedTokenFinder::space_start(std::string_view text, size_t end) {
  while (end > 0) {
    const Utf8Character c = last_character(text.substr(0, end));
    if (!is_space(c.code_point)) break;
    end -= c.size;
  }
  return end;
}

size_t AddedTokenFinder::space_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Character c = read_utf8(text.data() + begin, text.data() + text.size());
    if (!is_space(c.code_point)) break;
    begin += c.size;
  }
  return begin;
}

}  // namespace ballast::tokenizer
