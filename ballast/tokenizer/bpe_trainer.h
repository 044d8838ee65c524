// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "ballast/tokenizer/bpe_vocabulary.h"
#include "ballast/tokenizer/lending_pool.h"
#include "ballast/tokenizer/tokenizer.h"
#include "ballast/tokenizer/word_counts.h"

namespace ballast::tokenizer {

// Trains a byte-level BPE: feed it text, then ask for a vocabulary. Memory is bounded by the
// distinct pre-tokens, once per thread that feeds.
//
// Ids: 0..255 are the bytes in GPT-2's order, then the products of merges in the order they were
// found; the last id is <|endoftext|>. Each step merges the most frequent pair; of equally frequent
// pairs the one with the smaller ids (left, then right). The merges are those of Hugging Face's
// BpeTrainer(initial_alphabet=ByteLevel.alphabet()), and depend on the text alone: neither on the
// order in which it was fed nor on threads.
class BpeTrainer {
 public:
  // Counts the pre-tokens of `text`: whole documents, or pieces cut as TextReader cuts them.
  // <|endoftext|> in it separates documents. Thread-safe.
  void add(std::string_view text);

  // Throws UserError if vocabulary_size < 257 or no text was added. Where the text has too few
  // pairs to merge, warns and gives a smaller vocabulary. REQUIRES: no add() is running.
  std::unique_ptr<Tokenizer> train(TokenId vocabulary_size);

 private:
  LendingPool<WordCounts> counts_;
};

// The same from counted words; end-of-text included in the size.
BpeVocabulary train_bpe(const WordCounts& words, TokenId vocabulary_size);

}  // namespace ballast::tokenizer
