// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/tokenizer/text_pipeline.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

// Two adjacent tokens that become one.
struct Merge {
  TokenId left = 0, right = 0, result = 0;
  bool operator==(const Merge&) const = default;
};

// A token recognised in text before anything else is done to it; tokens[id] is its content.
struct AddedToken {
  TokenId id = 0;
  // Hugging Face looks for tokens that are not `normalized` first, then for the others, normalized
  // as the text is, in what is left. `special` only matters to its decoder.
  bool normalized = false, special = true;
  bool left_strip = false, right_strip = false;  // takes the white space there with it
  bool single_word = false;                      // only where no word goes on beside it
  bool operator==(const AddedToken&) const = default;
};

// Everything that decides ids, as tokenizer.json has it.
struct BpeVocabulary {
  // By id; in the byte-level alphabet unless the pipeline says otherwise, added tokens as they are.
  std::vector<std::string> tokens;
  std::vector<Merge> merges;  // by rank, each pair once
  std::vector<AddedToken> added;
  TokenId end_of_text = 0;
  TextPipeline pipeline;
  TextFrame frame;
  bool operator==(const BpeVocabulary&) const = default;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// GPT-2 writes bytes as printable characters: alphabet[b] is byte b's, in UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();
// Bytes in the order of their characters' code points: GPT-2's order of the first 256 ids.
const std::array<uint8_t, 256>& byte_level_order();
// The bytes that a token in the byte-level alphabet stands for; none if it has any other character.
std::optional<std::string> byte_level_bytes(std::string_view token);
// The same; a token with any other character stands for itself, as in Hugging Face's decoder.
std::string bytes_of_token(std::string_view token);

// ids 0..255 are bytes, 256 is end-of-text, no merges.
BpeVocabulary byte_vocabulary();

// Of several equal pairs the last stays, as in Hugging Face.
void drop_repeated_merges(std::vector<Merge>& merges);

// A hash of everything that decides ids, which the frame does not.
uint64_t fingerprint_of(const BpeVocabulary& vocabulary);

}  // namespace ballast::tokenizer
