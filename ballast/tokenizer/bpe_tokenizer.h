// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/tokenizer/added_token_finder.h"
#include "ballast/tokenizer/bpe_vocabulary.h"
#include "ballast/tokenizer/character_words.h"
#include "ballast/tokenizer/lending_pool.h"
#include "ballast/tokenizer/normalizer.h"
#include "ballast/tokenizer/split_pattern.h"
#include "ballast/tokenizer/tokenizer.h"
#include "ballast/tokenizer/word_cache.h"
#include "ballast/tokenizer/word_encoder.h"

namespace ballast::tokenizer {

// Files that a tokenizer was read from, with all their bytes.
struct KeptFile {
  std::string name, bytes;
};

// BPE: byte-level as GPT-2's, Llama 3's and Qwen's, or SentencePiece-style as Llama 2's and
// Mixtral's. Ids equal those of Hugging Face `tokenizers` with the same file and
// add_special_tokens=False; see pretokenizer.h, split_pattern.h and character_symbols.h for bytes
// that are not UTF-8. Decoded bytes that are not UTF-8 stay as they are, where Hugging Face writes
// U+FFFD.
class BpeTokenizer final : public Tokenizer {
 public:
  // REQUIRES: checked, as bpe_files.h reads it. save() writes `files` where there are some.
  explicit BpeTokenizer(BpeVocabulary vocabulary, std::vector<KeptFile> files = {});
  ~BpeTokenizer() override;

  std::string_view kind() const override { return "bpe"; }
  TokenId vocabulary_size() const override {
    return static_cast<TokenId>(vocabulary_.tokens.size());
  }
  TokenId end_of_text() const override { return vocabulary_.end_of_text; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  void encode_continued(std::string_view text, std::vector<TokenId>& ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  std::string decode_text(const std::vector<TokenId>& ids) const override;
  const TextFrame& frame() const override { return vocabulary_.frame; }
  void save(const std::filesystem::path& folder) const override;
  uint64_t fingerprint() const override { return fingerprint_; }

  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 private:
  class IdBuffer;
  struct Scratch;
  void encode_from(StretchStart start, std::string_view text, std::vector<TokenId>& ids) const;
  void encode_stretch(std::string_view text, StretchStart start, Scratch& scratch,
                      IdBuffer& out) const;
  void encode_gpt2(std::string_view text, Scratch& scratch, IdBuffer& out) const;
  void encode_splits(size_t step, std::string_view text, std::string_view subject, Scratch& scratch,
                     IdBuffer& out) const;
  void encode_characters(std::string_view text, StretchStart start, Scratch& scratch,
                         IdBuffer& out) const;
  // A pre-token; what follows it up to `end` may be read too.
  void encode_word(std::string_view word, const char* end, Scratch& scratch, IdBuffer& out) const;
  void encode_uncached(std::string_view word, WordCache* cache, WordCache::Key key,
                       IdBuffer& out) const;

  BpeVocabulary vocabulary_;
  std::vector<KeptFile> files_;
  std::vector<std::string> token_bytes_;
  Normalizer normalizer_;
  AddedTokenFinder added_;
  bool only_gpt2_split_;
  std::vector<std::optional<SplitPattern>> splits_;  // of byte-level BPE; none: GPT-2's
  std::optional<CharacterWords> characters_;         // none: byte-level BPE
  WordEncoder words_;
  uint64_t fingerprint_;
  mutable LendingPool<Scratch> scratch_;  // never decides ids, only how fast they come
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
