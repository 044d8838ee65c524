// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::tokenizer {

using TokenId = uint32_t;

// Tokens that stand before and after a text, as the tokenizer's file has it (its post-processor):
// a model that was trained so wants them (Llama: begin-of-text). encode() adds none of them. Who
// hands a text to such a model adds them: a document's `begin` before it, a prompt's likewise.
struct TextFrame {
  std::vector<TokenId> begin, end;
  bool operator==(const TextFrame&) const = default;
};

// Text <-> token ids. Thread-safe after construction.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;    // "bytes" or "bpe"
  virtual TokenId vocabulary_size() const = 0;  // end-of-text included
  virtual TokenId end_of_text() const = 0;      // stands between documents
  // Appends the ids of `text` (any bytes), in which added tokens that the vocabulary declares are
  // recognised.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids) const = 0;
  // The same for a text that goes on where another ended: without what a text's start gets (the
  // space before Llama 2's first word). A text may be encoded in pieces, the first by encode() and
  // the others by this, where it is cut as TextReader cuts (ballast/text), no added token lies
  // across the cut, and no token has white space after another character.
  virtual void encode_continued(std::string_view text, std::vector<TokenId>& ids) const {
    encode(text, ids);
  }
  // The bytes a token stands for within a text; for end-of-text its name. Throws UserError if out
  // of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual const TextFrame& frame() const;
  // Writes what load_tokenizer reads back: tokenizer.json, to the byte as it was read, with the
  // tokenizer_config.json that was beside it; and for GPT-2's BPE vocab.json and merges.txt.
  virtual void save(const std::filesystem::path& folder) const = 0;
  // A hash of everything that decides ids: equal for equal vocabularies, from whatever file.
  virtual uint64_t fingerprint() const = 0;

  // What the tokens stand for within a text: the bytes of one after another.
  std::string decode(const std::vector<TokenId>& ids) const;
  // The text whose tokens these are, from its start. decode_text(encode(text)) == text for any
  // bytes, where the tokenizer does not normalize and has a token for each byte.
  virtual std::string decode_text(const std::vector<TokenId>& ids) const { return decode(ids); }
};

// "bytes", a tokenizer.json, a folder holding one, or a folder holding vocab.json and merges.txt.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace ballast::tokenizer
