// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// Hugging Face's files of a BPE. Readers throw UserError naming the file and the field for anything
// damaged and for anything whose ids we would not reproduce exactly: other models than BPE, types
// of normalizers, pre-tokenizers, decoders and post-processors that text_pipeline.h does not have,
// add_prefix_space of ByteLevel, dropout, subword prefixes and suffixes, truncation, padding. They
// want ids 0..n-1 without holes or repeats, merges whose parts and result are in the vocabulary,
// and for byte-level BPE a token for each of the 256 bytes.
//
// End-of-text is the first that there is of <|endoftext|>, </s>, <|end_of_text|>, <eos>, and the
// eos_token of tokenizer_config.json.

// A tokenizer_config.json, where there is one.
struct TokenizerConfig {
  std::string text;
  std::filesystem::path path;  // for messages
};

// tokenizer.json: merges as "a b" or as ["a", "b"]. `path` is for messages.
BpeVocabulary parse_tokenizer_json(std::string_view text, const std::filesystem::path& path,
                                   const TokenizerConfig& config = {});
// vocab.json and merges.txt. They declare no added tokens; end-of-text is taken for one, as GPT-2's
// tokenizer in `transformers` does.
BpeVocabulary read_vocab_and_merges(const std::filesystem::path& vocab_json,
                                    const std::filesystem::path& merges_txt);

// They write into `folder`, created where missing; each file appears whole or not at all.
void write_tokenizer_json(const BpeVocabulary& vocabulary, const std::filesystem::path& folder);
void write_vocab_and_merges(const BpeVocabulary& vocabulary, const std::filesystem::path& folder);

}  // namespace ballast::tokenizer
