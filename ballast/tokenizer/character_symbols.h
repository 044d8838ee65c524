// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// What merges start from in SentencePiece-style BPE: a token for each character, as Hugging Face
// has it. A byte that is not UTF-8 is its byte token; without one, an unknown character.
class CharacterSymbols {
 public:
  explicit CharacterSymbols(const BpeVocabulary& vocabulary);  // REQUIRES: pipeline.characters

  void append(std::string_view text, std::vector<TokenId>& ids) const;

 private:
  std::optional<TokenId> token_of(uint32_t code_point) const;
  bool append_bytes(std::string_view character, std::vector<TokenId>& ids) const;

  std::array<std::optional<TokenId>, 128> ascii_;
  std::unordered_map<uint32_t, TokenId> others_;
  std::array<std::optional<TokenId>, 256> bytes_;  // <0x00> ... <0xFF>
  bool byte_fallback_, fuse_unknown_;
  std::optional<TokenId> unknown_;
};

// "<0x41>" -> 0x41; nothing for other tokens.
std::optional<uint8_t> byte_of_token(std::string_view token);

}  // namespace ballast::tokenizer
