// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/split_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ballast::tokens {
namespace {

void add_document(TextTotals& totals, std::optional<double> nats) {
  totals.documents += 1;
  if (totals.nats && nats) {
    *totals.nats += *nats;
  } else {
    totals.nats.reset();
  }
}

}  // namespace

SplitWriter::SplitWriter(std::filesystem::path folder, std::string split,
                         const tokenizer::Tokenizer& tokenizer, uint64_t shard_tokens,
                         tokenizer::Framing framing)
    : folder_(std::move(folder)),
      split_(std::move(split)),
      tokenizer_(tokenizer),
      shard_tokens_(shard_tokens),
      begin_(tokenizer::begin_of_document(tokenizer, framing)),
      end_(tokenizer::end_of_document(tokenizer, framing)) {}

void SplitWriter::append(uint32_t domain, std::span<const tokenizer::TokenId> ids,
                         uint64_t source_bytes) {
  if (!in_document_) {
    in_document_ = true;
    domain_ = domain;
    if (index_.domains.size() <= domain) index_.domains.resize(domain + 1);
    begin_part(PartKind::kBeginsHere);
    append_to_shards(begin_, 0);
  }
  append_to_shards(ids, source_bytes);
}

void SplitWriter::end_document(std::optional<double> nats) {
  if (!in_document_) throw std::logic_error("SplitWriter: end_document without a document");
  append_to_shards(end_, 0);
  add_document(index_.totals, nats);
  add_document(index_.domains[domain_], nats);
  in_document_ = false;
}

void SplitWriter::append_to_shards(std::span<const tokenizer::TokenId> ids, uint64_t source_bytes) {
  for (TextTotals* totals : {&index_.totals, &index_.domains[domain_]}) {
    totals->tokens += ids.size();
    totals->source_bytes += source_bytes;
  }
  while (!ids.empty()) {
    if (shard_->counts().tokens == shard_tokens_) begin_part(PartKind::kBeganInEarlierShard);
    const auto room = static_cast<size_t>(
        std::min<uint64_t>(ids.size(), shard_tokens_ - shard_->counts().tokens));
    uint64_t bytes = source_bytes;
    if (room < ids.size()) {  // the text that lies in this shard is what its tokens stand for
      bytes = 0;
      for (const tokenizer::TokenId id : ids.first(room))
        bytes += tokenizer_.token_bytes(id).size();
      bytes = std::min(bytes, source_bytes);
    }
    shard_->append(ids.first(room), bytes);
    ids = ids.subspan(room);
    source_bytes -= bytes;
  }
}

void SplitWriter::begin_part(PartKind kind) {
  if (shard_ &&
      (shard_->counts().tokens == shard_tokens_ || shard_->counts().parts == kMaxShardParts)) {
    close_shard();
  }
  if (!shard_) {
    index_.shards.push_back({fmt::format("{}-{:05}.tokens", split_, index_.shards.size()), {}});
    shard_ = std::make_unique<TokenShardWriter>(folder_ / index_.shards.back().file,
                                                identity_of(tokenizer_));
  }
  shard_->begin_part(domain_, kind);
}

void SplitWriter::close_shard() {
  index_.shards.back().counts = shard_->finish();
  shard_.reset();
}

SplitIndex SplitWriter::finish(size_t num_domains) {
  if (in_document_) throw std::logic_error("SplitWriter: finish within a document");
  if (shard_) close_shard();
  index_.domains.resize(num_domains);
  return std::move(index_);
}

}  // namespace ballast::tokens
