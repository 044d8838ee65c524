// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/system/checksum.h"
#include "ballast/system/file.h"
#include "ballast/tokens/token_source.h"

namespace ballast::tokens {

// The tokenizer of a data set, as far as its shards know it.
struct TokenizerIdentity {
  std::string kind;  // "bytes" or "bpe"
  uint32_t vocabulary_size = 0;
  tokenizer::TokenId end_of_text = 0;
  uint64_t fingerprint = 0;

  uint32_t token_bytes() const { return vocabulary_size <= 65536 ? 2 : 4; }
  bool operator==(const TokenizerIdentity&) const = default;
};
TokenizerIdentity identity_of(const tokenizer::Tokenizer& tokenizer);

enum class PartKind : uint32_t { kBeginsHere = 0, kBeganInEarlierShard = 1 };

// One row of a shard's document table: a document, or the part of one that lies in this shard.
struct DocumentPart {
  uint64_t first_token = 0;
  uint64_t source_bytes = 0;
  uint32_t domain = 0;
  PartKind kind = PartKind::kBeginsHere;
};
static_assert(sizeof(DocumentPart) == 24);

struct ShardCounts {
  uint64_t tokens = 0;
  uint64_t documents = 0;  // those that begin here
  uint64_t parts = 0;      // rows of the document table
  uint64_t source_bytes = 0;
  uint64_t checksum = 0;  // of all bytes after the header
  bool operator==(const ShardCounts&) const = default;
};

// Writes one shard file, layout in docs/file_formats.md. Nothing is sure to be on disk, and the
// file has no valid header, before finish().
class TokenShardWriter {
 public:
  TokenShardWriter(const std::filesystem::path& path, const TokenizerIdentity& tokenizer);

  void begin_part(uint32_t domain, PartKind kind);
  // Tokens of the part begun last, which stand for `source_bytes` bytes of text.
  void append(std::span<const tokenizer::TokenId> ids, uint64_t source_bytes);
  const ShardCounts& counts() const { return counts_; }
  ShardCounts finish();

 private:
  void write(std::span<const std::byte> bytes);

  TokenizerIdentity tokenizer_;
  OutputFile file_;
  StreamingChecksum checksum_;
  ShardCounts counts_;
  std::vector<DocumentPart> parts_;
  std::vector<std::byte> encoded_;
};

// A shard file, mapped. Opening checks the header and the file's size against it.
class TokenShard {
 public:
  explicit TokenShard(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const ShardCounts& counts() const { return counts_; }
  uint64_t bytes() const { return file_.bytes().size(); }  // of the file
  // `kind` is not part of a shard and stays empty.
  const TokenizerIdentity& tokenizer() const { return tokenizer_; }
  std::span<const DocumentPart> parts() const { return parts_; }
  // `domains` names what the document table counts; empty: the tokens have no domains. Reading
  // domains throws UserError where the table is damaged.
  std::unique_ptr<TokenSource> tokens(std::vector<std::string> domains = {}) const;
  // Calls use(ids) for tokens [first, last), block by block. What was read does not stay in memory.
  void for_blocks(uint64_t first, uint64_t last,
                  const std::function<void(std::span<const tokenizer::TokenId>)>& use) const;

  // Reads everything: checksum, document table, every id. Throws UserError naming the file.
  void verify() const;

 private:
  void verify_parts() const;

  std::filesystem::path path_;
  MappedFile file_;
  ShardCounts counts_;
  TokenizerIdentity tokenizer_;
  std::span<const DocumentPart> parts_;
};

bool is_token_shard(const std::filesystem::path& path);

}  // namespace ballast::tokens
