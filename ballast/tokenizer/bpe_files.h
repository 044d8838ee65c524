// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// Hugging Face's files of a byte-level BPE. Readers throw UserError naming the file and the field
// for anything damaged and for anything whose ids we would not reproduce exactly: a normalizer,
// another pre-tokenizer, add_prefix_space, dropout, ignore_merges, subword prefixes and suffixes,
// truncation, padding, post-processors that add tokens, added tokens that strip white space or must
// be whole words. They want a token for each of the 256 bytes, ids 0..n-1 without holes or repeats,
// merges whose parts and result are in the vocabulary, and an end-of-text token: <|endoftext|> or
// </s>.

// tokenizer.json: merges as "a b" or as ["a", "b"].
BpeVocabulary read_tokenizer_json(const std::filesystem::path& path);
// vocab.json and merges.txt. They declare no added tokens; end-of-text is taken for one, as GPT-2's
// tokenizer in `transformers` does.
BpeVocabulary read_vocab_and_merges(const std::filesystem::path& vocab_json,
                                    const std::filesystem::path& merges_txt);

// They write into `folder`, created where missing; each file appears whole or not at all.
void write_tokenizer_json(const BpeVocabulary& vocabulary, const std::filesystem::path& folder);
void write_vocab_and_merges(const BpeVocabulary& vocabulary, const std::filesystem::path& folder);

}  // namespace ballast::tokenizer
