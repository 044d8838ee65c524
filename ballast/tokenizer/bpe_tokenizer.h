// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/tokenizer/added_token_finder.h"
#include "ballast/tokenizer/bpe_vocabulary.h"
#include "ballast/tokenizer/lending_pool.h"
#include "ballast/tokenizer/tokenizer.h"
#include "ballast/tokenizer/word_cache.h"
#include "ballast/tokenizer/word_encoder.h"

namespace ballast::tokenizer {

// GPT-2's byte-level BPE. Ids equal those of Hugging Face `tokenizers` with the same vocabulary
// (and add_special_tokens=False); see pretokenizer.h for bytes that are not UTF-8.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocabulary vocabulary);  // REQUIRES: checked, as bpe_files.h reads it

  std::string_view kind() const override { return "bpe"; }
  TokenId vocabulary_size() const override {
    return static_cast<TokenId>(vocabulary_.tokens.size());
  }
  TokenId end_of_text() const override { return vocabulary_.end_of_text; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  void save(const std::filesystem::path& folder) const override;
  uint64_t fingerprint() const override { return fingerprint_; }

  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 private:
  class IdBuffer;
  void encode_stretch(std::string_view text, WordCache& cache, IdBuffer& out) const;
  void encode_uncached(std::string_view word, WordCache::Slot* slot, WordCache::Key key,
                       IdBuffer& out) const;

  BpeVocabulary vocabulary_;
  std::vector<std::string> token_bytes_;
  AddedTokenFinder added_;
  WordEncoder words_;
  uint64_t fingerprint_;
  mutable LendingPool<WordCache> caches_;  // never decides ids, only how fast they come
};

// ids 0..255 are the bytes, 256 is <|endoftext|>, which is recognised in text as in BPE.
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer();

  std::string_view kind() const override { return "bytes"; }
  TokenId vocabulary_size() const override { return 257; }
  TokenId end_of_text() const override { return 256; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  // A tokenizer.json without merges, with which Hugging Face gives the same ids.
  void save(const std::filesystem::path& folder) const override;
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  AddedTokenFinder added_;
  uint64_t fingerprint_;
};

}  // namespace ballast::tokenizer
