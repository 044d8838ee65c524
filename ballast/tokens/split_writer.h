// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ballast/tokenizer/text_bounds.h"
#include "ballast/tokens/token_dataset.h"
#include "ballast/tokens/token_shard.h"

namespace ballast::tokens {

// Writes the documents of one split into shards of at most `shard_tokens` tokens.
class SplitWriter {
 public:
  // A shard's document table is kept in memory until it is written: this bounds it.
  static constexpr uint64_t kMaxShardParts = 1 << 20;

  // REQUIRES: tokenizer outlives this object; shard_tokens > 0.
  SplitWriter(std::filesystem::path folder, std::string split,
              const tokenizer::Tokenizer& tokenizer, uint64_t shard_tokens,
              tokenizer::Framing framing = tokenizer::Framing::kPlain);

  // A document is any number of append() and one end_document(), which adds the end-of-text token.
  // Framed ones get their frame as well.
  void append(uint32_t domain, std::span<const tokenizer::TokenId> ids, uint64_t source_bytes);
  void end_document(std::optional<double> nats);
  const TextTotals& totals() const { return index_.totals; }

  // Closes the last shard. REQUIRES: no document is open, all domains are below num_domains.
  SplitIndex finish(size_t num_domains);

 private:
  void append_to_shards(std::span<const tokenizer::TokenId> ids, uint64_t source_bytes);
  void begin_part(PartKind kind);  // in a new shard if the present one is full
  void close_shard();

  std::filesystem::path folder_;
  std::string split_;
  const tokenizer::Tokenizer& tokenizer_;
  uint64_t shard_tokens_;
  const std::vector<tokenizer::TokenId> begin_, end_;  // of a document
  SplitIndex index_;
  std::unique_ptr<TokenShardWriter> shard_;
  bool in_document_ = false;
  uint32_t domain_ = 0;
};

}  // namespace ballast::tokens
