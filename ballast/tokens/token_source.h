// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokens {

// What is known of a sequence of tokens beside the tokens themselves.
struct TokenSourceInfo {
  std::string name = {};    // the path, for messages
  std::string format = {};  // "ballast", "llm.c", "nanoGPT", "Megatron", "fairseq", "memory"
  std::optional<uint64_t> vocabulary_size = {};  // every id is below it
  std::optional<tokenizer::TokenId> end_of_text = {};
  std::optional<uint64_t> tokenizer_fingerprint = {};
  std::optional<std::filesystem::path> tokenizer_folder = {};  // for load_tokenizer
  std::optional<uint64_t> source_bytes = {};                   // of the text the tokens stand for
  std::optional<double> nats = {};                // -log p(text) under the law that wrote it
  std::optional<uint64_t> content_checksum = {};  // of every token, where a file's header has it
};

// Tokens one after another, read by position; nothing but what is asked for is loaded. Reading is
// thread-safe.
class TokenSource {
 public:
  explicit TokenSource(TokenSourceInfo info);
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  virtual uint64_t size() const = 0;  // tokens
  const TokenSourceInfo& info() const { return info_; }

  // A hash that tells contents apart, wherever they lie. For our shards it is made of their
  // checksums, for other programs' files of their tokens (all up to 2 million; of more, 256 blocks
  // of 4096 spread evenly).
  virtual uint64_t fingerprint() const;

  // Copies tokens [first, first + out.size()). Throws std::out_of_range beyond size(), and
  // UserError for an id outside the vocabulary, naming its place.
  void read(uint64_t first, std::span<int64_t> out) const;

  // Names of the domains that documents are of; empty: not known.
  virtual const std::vector<std::string>& domains() const;
  // The domains of tokens [first, first + out.size()), as indices into domains(); -1: not known. A
  // document's end-of-text is of its domain. Throws std::out_of_range beyond size().
  void read_domains(uint64_t first, std::span<int32_t> out) const;

  // Tells which ids the reader (a model) can take: throws UserError at once if the source declares
  // a larger vocabulary; otherwise read() refuses ids from `vocabulary_size` on.
  void limit_vocabulary(uint64_t vocabulary_size);

  // Entropy floor in nats, where the law of the text is known: no model does better on average.
  std::optional<double> floor_per_token() const;
  std::optional<double> floor_per_byte() const;

 protected:
  // REQUIRES: first + out.size() <= size(). Negative numbers are reported by the caller.
  virtual void copy(uint64_t first, std::span<int64_t> out) const = 0;
  // REQUIRES: the same. To be overridden together with domains().
  virtual void copy_domains(uint64_t first, std::span<int32_t> out) const;

 private:
  void check_range(uint64_t first, uint64_t count) const;

  TokenSourceInfo info_;
  std::optional<uint64_t> limit_;
};

std::unique_ptr<TokenSource> tokens_in_memory(std::vector<int64_t> tokens, TokenSourceInfo info);

// Several sources read as one, in their order. What `info` leaves out is filled in where all
// sources know it: the largest vocabulary, what they agree on of the tokenizer, sums of bytes and
// nats. Domains of the same name are one.
std::unique_ptr<TokenSource> concatenate(std::vector<std::unique_ptr<TokenSource>> sources,
                                         TokenSourceInfo info);

// Recognises what `path` is and opens it:
//   a folder written by `ballast prepare` (its split `split`), one shard file of it (which has
//   domains where the index it was written with is beside it);
//   an llm.c or nanoGPT `.bin`, a Megatron or fairseq `.idx`, `.bin` beside one, or their prefix;
//   a folder of such `.bin` files, whose names say `train`, `val` or `test`.
// `split` is "train", "valid" or "test"; it chooses within folders, a single foreign file is taken
// whole. Throws UserError that says what was found instead and what to do.
std::unique_ptr<TokenSource> open_token_source(const std::filesystem::path& path,
                                               const std::string& split = "train");

// The texts by which a run recognises its data and its tokenizer: "3456 tokens, fingerprint
// 0123456789abcdef" and
// "bpe of 512 tokens, fingerprint 0123456789abcdef".
std::string fingerprint_text(const TokenSource& source);
std::string fingerprint_text(const tokenizer::Tokenizer& tokenizer);

// Throws UserError if the source is known to come from another tokenizer.
void require_same_tokenizer(const TokenSource& source, const tokenizer::Tokenizer& tokenizer);

}  // namespace ballast::tokens
