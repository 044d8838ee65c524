// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/tail_split.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ballast/system/file.h"
#include "ballast/tokens/split_writer.h"

namespace ballast::tokens {
namespace {

constexpr uint64_t kCutSearch = 1 << 16;  // tokens in which a line's end is looked for

constexpr uint64_t kMinTail = 8;  // less than this is not worth a split

// Tokens of the frame stand for no text.
uint64_t text_bytes(std::span<const tokenizer::TokenId> ids,
                    const tokenizer::Tokenizer& tokenizer) {
  const tokenizer::TextFrame& frame = tokenizer.frame();
  const auto is_in = [](const std::vector<tokenizer::TokenId>& part, tokenizer::TokenId id) {
    return std::ranges::find(part, id) != part.end();
  };
  uint64_t bytes = 0;
  for (const tokenizer::TokenId id : ids)
    if (!is_in(frame.begin, id) && !is_in(frame.end, id)) bytes += tokenizer.token_bytes(id).size();
  return bytes;
}

// The position from `cut` on that follows a line's or document's end; failing that, one that is not
// within a UTF-8 character.
uint64_t move_to_line_start(const TokenSource& tokens, uint64_t cut,
                            const tokenizer::Tokenizer& tokenizer) {
  const uint64_t room = tokens.size() - cut;
  std::vector<int64_t> ids(std::min(kCutSearch, room / 2) + 2);
  tokens.read(cut - 1, ids);  // from the token before the cut on
  const auto ends_document = [&](size_t i) { return ids[i] == tokenizer.end_of_text(); };
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    // A document's last line ends with the document: a cut between would make an empty one.
    const auto bytes = tokenizer.token_bytes(static_cast<tokenizer::TokenId>(ids[i]));
    if (ends_document(i) || (bytes.ends_with('\n') && !ends_document(i + 1))) return cut + i;
  }
  if (ends_document(ids.size() - 1)) return cut + ids.size() - 1;
  for (size_t i = 1; i + 1 < ids.size(); ++i) {
    const std::string_view bytes = tokenizer.token_bytes(static_cast<tokenizer::TokenId>(ids[i]));
    const bool within_character = !bytes.empty() && (static_cast<uint8_t>(bytes[0]) & 0xC0) == 0x80;
    if (!within_character) return cut + i - 1;
  }
  return cut;
}

struct Cut {
  size_t shard;       // the shard that holds the first token of the tail,
  uint64_t position;  // and where in it
};

class TailMover {
 public:
  TailMover(const fs::path& folder, SplitIndex train, const tokenizer::Tokenizer& tokenizer,
            uint64_t shard_tokens)
      : folder_(folder),
        tokenizer_(tokenizer),
        result_{.train = std::move(train), .valid = {}},
        valid_(folder, "valid", tokenizer, shard_tokens) {
    for (const ShardEntry& entry : result_.train.shards) shards_.emplace_back(folder / entry.file);
  }

  // A document that is cut where its shard is full leaves no room for end-of-text: one token
  // earlier.
  Cut with_room_for_end(Cut cut) const {
    const bool at_end = cut.position == shards_[cut.shard].counts().tokens;
    if (at_end && !document_ends(cut.shard, shards_[cut.shard].parts().size() - 1)) --cut.position;
    return cut;
  }

  TailSplit move(Cut cut) {
    for (size_t i = cut.shard; i < shards_.size(); ++i) {
      copy_tail(i, i == cut.shard ? cut.position : 0);
    }
    result_.valid = valid_.finish(result_.train.domains.size());
    subtract_valid();
    rewrite_cut_shard(cut);
    recount_source_bytes();
    // Which part of a cut document's surprise lies where is not known.
    for (SplitIndex* split : {&result_.train, &result_.valid}) {
      split->totals.nats.reset();
      for (TextTotals& totals : split->domains) totals.nats.reset();
    }
    return std::move(result_);
  }

 private:
  uint64_t part_end(size_t shard, size_t part) const {
    const auto parts = shards_[shard].parts();
    return part + 1 < parts.size() ? parts[part + 1].first_token : shards_[shard].counts().tokens;
  }

  bool document_ends(size_t shard, size_t part) const {
    if (part + 1 < shards_[shard].parts().size() || shard + 1 == shards_.size()) return true;
    return shards_[shard + 1].parts()[0].kind == PartKind::kBeginsHere;
  }

  void copy_tail(size_t shard, uint64_t from) {
    const auto parts = shards_[shard].parts();
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint64_t end = part_end(shard, i);
      if (end <= from) continue;
      const uint64_t begin = std::max(from, parts[i].first_token);
      const bool ends = document_ends(shard, i);  // then its last token is end-of-text
      valid_.append(parts[i].domain, {}, 0);
      shards_[shard].for_blocks(begin, end - ends, [&](std::span<const tokenizer::TokenId> ids) {
        valid_.append(parts[i].domain, ids, text_bytes(ids, tokenizer_));
      });
      if (ends) valid_.end_document(std::nullopt);
    }
  }

  void subtract_valid() {
    const auto subtract = [](TextTotals& from, const TextTotals& what) {
      from.documents -= what.documents;
      from.tokens -= what.tokens;
    };
    subtract(result_.train.totals, result_.valid.totals);
    for (size_t i = 0; i < result_.train.domains.size(); ++i) {
      subtract(result_.train.domains[i], result_.valid.domains[i]);
    }
  }

  // Where a tokenizer normalizes, tokens stand for other bytes than the text had: what was moved
  // cannot be subtracted.
  void recount_source_bytes() {
    SplitIndex& train = result_.train;
    train.totals.source_bytes = 0;
    for (TextTotals& totals : train.domains) totals.source_bytes = 0;
    for (const ShardEntry& entry : train.shards) {
      const TokenShard shard(folder_ / entry.file);
      for (const auto& part : shard.parts()) {
        train.totals.source_bytes += part.source_bytes;
        train.domains[part.domain].source_bytes += part.source_bytes;
      }
    }
  }

  // Keeps tokens [0, cut) of the shard at the cut and removes the shards after it.
  void rewrite_cut_shard(Cut cut) {
    const TokenShard& old = shards_[cut.shard];
    const fs::path kept = old.path().string() + ".kept";
    const auto parts = old.parts();
    TokenShardWriter writer(kept, identity_of(tokenizer_));
    for (size_t i = 0; i < parts.size() && parts[i].first_token < cut.position; ++i) {
      const uint64_t end = std::min(cut.position, part_end(cut.shard, i));
      const bool is_cut = end < part_end(cut.shard, i);
      writer.begin_part(parts[i].domain, parts[i].kind);
      uint64_t bytes = is_cut ? 0 : parts[i].source_bytes;
      old.for_blocks(parts[i].first_token, end, [&](std::span<const tokenizer::TokenId> ids) {
        writer.append(ids, is_cut ? text_bytes(ids, tokenizer_) : std::exchange(bytes, 0));
      });
      if (is_cut) end_cut_document(writer, parts[i].domain);
    }
    const ShardCounts counts = writer.finish();
    for (size_t i = cut.shard; i < shards_.size(); ++i) fs::remove(shards_[i].path());
    fs::rename(kept, old.path());
    result_.train.shards.resize(cut.shard + 1);
    result_.train.shards.back().counts = counts;
  }

  void end_cut_document(TokenShardWriter& writer, uint32_t domain) {
    const tokenizer::TokenId end = tokenizer_.end_of_text();
    writer.append({&end, 1}, 0);
    for (TextTotals* totals : {&result_.train.totals, &result_.train.domains[domain]}) {
      totals->documents += 1;  // it is one in each split now
      totals->tokens += 1;
    }
  }

  fs::path folder_;
  const tokenizer::Tokenizer& tokenizer_;
  TailSplit result_;
  SplitWriter valid_;
  std::vector<TokenShard> shards_;
};

}  // namespace

TailSplit split_off_tail(const fs::path& folder, SplitIndex train,
                         const tokenizer::Tokenizer& tokenizer, double fraction,
                         uint64_t shard_tokens) {
  const uint64_t total = train.totals.tokens;
  const auto wanted = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(total)));
  const uint64_t tail = std::max(kMinTail, wanted);
  if (total < tail + kMinTail) return {.train = std::move(train), .valid = {}};

  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const ShardEntry& entry : train.shards) {
    sources.push_back(TokenShard(folder / entry.file).tokens());
  }
  const auto tokens =
      concatenate(std::move(sources), {.name = folder.string(), .format = "ballast"});
  Cut cut{.shard = 0, .position = move_to_line_start(*tokens, total - tail, tokenizer)};
  // At a shard's end the cut belongs to that shard, so that none is left empty.
  while (cut.position > train.shards[cut.shard].counts.tokens) {
    cut.position -= train.shards[cut.shard++].counts.tokens;
  }
  TailMover mover(folder, std::move(train), tokenizer, shard_tokens);
  return mover.move(mover.with_room_for_end(cut));
}

}  // namespace ballast::tokens
