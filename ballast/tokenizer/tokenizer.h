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

// Text <-> token ids. Thread-safe after construction.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;    // "bytes" or "bpe"
  virtual TokenId vocabulary_size() const = 0;  // end-of-text included
  virtual TokenId end_of_text() const = 0;      // stands between documents
  // Appends the ids of `text` (any bytes), in which added tokens that the vocabulary declares are
  // recognised. A text may be encoded in pieces cut before white space that follows a non-space, as
  // long as no added token lies across the cut.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids) const = 0;
  // The bytes a token stands for; for end-of-text its name. Throws UserError if out of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  // Writes what load_tokenizer reads back: tokenizer.json, and for bpe vocab.json and merges.txt.
  virtual void save(const std::filesystem::path& folder) const = 0;
  // A hash of everything that decides ids: equal for equal vocabularies, from whatever file.
  virtual uint64_t fingerprint() const = 0;

  // decode(encode(text)) == text for any bytes.
  std::string decode(const std::vector<TokenId>& ids) const;
};

// "bytes", a tokenizer.json, a folder holding one, or a folder holding vocab.json and merges.txt.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace ballast::tokenizer
