// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/character_symbols.h"

#include <algorithm>
#include <charconv>

#include "ballast/tokenizer/utf8_character.h"

namespace ballast::tokenizer {

CharacterSymbols::CharacterSymbols(const BpeVocabulary& vocabulary)
    : byte_fallback_(vocabulary.pipeline.characters->byte_fallback),
      fuse_unknown_(vocabulary.pipeline.characters->fuse_unknown),
      unknown_(vocabulary.pipeline.characters->unknown) {
  const auto own_tokens =
      std::min<size_t>(vocabulary.tokens.size(), vocabulary.pipeline.first_added);
  for (TokenId id = 0; id < own_tokens; ++id) {
    const std::string& token = vocabulary.tokens[id];
    const Utf8Character c = read_utf8(token.data(), token.data() + token.size());
    if (c.size == token.size() && c.code_point < ascii_.size()) {
      ascii_[c.code_point] = id;
    } else if (c.size == token.size()) {
      others_.emplace(c.code_point, id);
    }
    // Only what is written in capitals is looked for when text is encoded.
    const auto byte = byte_of_token(token);
    const bool has_small =
        std::any_of(token.begin(), token.end(), [](char d) { return d >= 'a' && d <= 'f'; });
    if (byte && !has_small) bytes_[*byte] = id;
  }
}

std::optional<TokenId> CharacterSymbols::token_of(uint32_t code_point) const {
  if (code_point < ascii_.size()) return ascii_[code_point];
  const auto found = others_.find(code_point);
  return found == others_.end() ? std::nullopt : std::optional(found->second);
}

bool CharacterSymbols::append_bytes(std::string_view character, std::vector<TokenId>& ids) const {
  if (!byte_fallback_) return false;
  const auto token = [&](char c) { return bytes_[static_cast<uint8_t>(c)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char c) { return token(c); })) {
    return false;
  }
  for (const char c : character) ids.push_back(*token(c));
  return true;
}

void CharacterSymbols::append(std::string_view text, std::vector<TokenId>& ids) const {
  const char* const end = text.data() + text.size();
  bool pending = false;  // an unknown token waits, for others to join or for a known character
  const auto put_pending = [&] {
    if (pending) ids.push_back(*unknown_);
    pending = false;
  };
  for (const char* p = text.data(); p < end;) {
    const Utf8Character c = read_utf8(p, end);
    const std::string_view character(p, c.size);
    p += c.size;
    if (const auto token = token_of(c.code_point)) {
      put_pending();
      ids.push_back(*token);
    } else if (!append_bytes(character, ids) && unknown_) {
      if (!fuse_unknown_) put_pending();
      pending = true;
    }
  }
  put_pending();
}

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* const end = token.data() + 5;
  const auto result = std::from_chars(token.data() + 3, end, byte, 16);
  return result.ec == std::errc() && result.ptr == end ? std::optional(byte) : std::nullopt;
}

}  // namespace ballast::tokenizer
