// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Puts `text` before a text that is not empty.
struct Prepend {
  std::string text;
  bool operator==(const Prepend&) const = default;
};
// Every `from` becomes `to`.
struct Replace {
  std::string from, to;
  bool operator==(const Replace&) const = default;
};
using NormalizerStep = std::variant<UnicodeForm, Prepend, Replace>;

// Cuts text into pre-tokens: each match is one, and what is between matches.
struct SplitStep {
  std::string pattern;  // split_pattern.h; empty: GPT-2's, written by hand (pretokenizer.h)
  bool operator==(const SplitStep&) const = default;
};

// SentencePiece's way with spaces: each becomes `replacement`, which also starts a text.
enum class PrependScheme : uint8_t { kFirst, kAlways, kNever };
struct Metaspace {
  std::string replacement;  // one character
  // kFirst: only where the text starts; kAlways: after each added token too.
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;  // each replacement starts a pre-token; or the text is one
  bool operator==(const Metaspace&) const = default;
};

// BPE whose merges start from characters, as SentencePiece's models have it.
struct CharacterModel {
  std::optional<Metaspace> metaspace;  // none: a normalizer does its work, and nothing is cut
  // Characters that are no token: as tokens <0x00> ... <0xFF>, else `unknown`, else left out.
  bool byte_fallback = false;
  bool fuse_unknown = false;  // one `unknown` for several characters in a row
  std::optional<TokenId> unknown;
  // What a token stands for: after these, "<0x41>" is a byte where decodes_bytes.
  std::vector<Replace> decoder;
  bool decodes_bytes = false;
  uint32_t stripped_spaces = 0;  // at most so many are left out where a text starts
  bool operator==(const CharacterModel&) const = default;
};

// What is done to text before merges, and to tokens that become text. The default is GPT-2's.
struct TextPipeline {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splits = {SplitStep{}};  // of byte-level BPE: one after another
  std::optional<CharacterModel> characters;       // none: byte-level BPE
  bool ignore_merges = false;                     // a pre-token that is a token stays whole
  // Tokens from here on were added, and are found in no other way. Only set where that matters.
  TokenId first_added = std::numeric_limits<TokenId>::max();
  bool operator==(const TextPipeline&) const = default;
};

// Everything in it, in words of our own: equal for equal pipelines alone. Part of fingerprints.
std::string description_of(const TextPipeline& pipeline);

}  // namespace ballast::tokenizer
