// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/word_encoder.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace ballast::tokenizer {
namespace {

// Above this many symbols the queue is faster than scanning.
constexpr size_t kLongWord = 64;

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(2 * merges.size(), 2));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = uint64_t{merges[rank].left} << 32 | merges[rank].right;
    size_t i = key * kMultiplier >> shift_;
    while (slots_[i].entry.rank != kNoRank) i = (i + 1) & mask_;
    slots_[i] = {key, {static_cast<uint32_t>(rank), merges[rank].result}};
  }
}

WordEncoder::WordEncoder(const BpeVocabulary& vocabulary) : merges_(vocabulary.merges) {
  const TextPipeline& pipeline = vocabulary.pipeline;
  const auto own_tokens = std::min<size_t>(vocabulary.tokens.size(), pipeline.first_added);
  std::unordered_map<std::string_view, TokenId> ids;
  for (TokenId id = 0; id < own_tokens; ++id) ids.emplace(vocabulary.tokens[id], id);
  if (pipeline.characters) {
    characters_.emplace(vocabulary);
  } else {
    for (size_t byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = ids.at(byte_level_alphabet()[byte]);
    }
  }
  if (!pipeline.ignore_merges) return;
  for (const auto& [token, id] : ids) {
    if (pipeline.characters) {
      whole_.emplace(token, id);
    } else if (const auto bytes = byte_level_bytes(token)) {
      whole_.emplace(*bytes, id);
    }
  }
}

void WordEncoder::append_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  if (characters_) return characters_->append(word, ids);
  for (const char c : word) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

void WordEncoder::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (!whole_.empty()) {
    const auto found = whole_.find(word);
    if (found != whole_.end()) return ids.push_back(found->second);
  }
  const size_t begin = ids.size();
  append_symbols(word, ids);
  if (ids.size() - begin <= kLongWord) {
    merge_by_scan(ids, begin);
  } else {
    merge_by_queue(ids, begin);
  }
}

void WordEncoder::encode_by_scan(std::string_view word, std::vector<TokenId>& ids) const {
  const size_t begin = ids.size();
  append_symbols(word, ids);
  merge_by_scan(ids, begin);
}

void WordEncoder::merge_by_scan(std::vector<TokenId>& ids, size_t begin) const {
  TokenId* const symbols = ids.data() + begin;
  size_t count = ids.size() - begin;

  std::array<MergeTable::Entry, kLongWord> few;
  std::vector<MergeTable::Entry> many(count > few.size() ? count : 0);
  MergeTable::Entry* const pairs = many.empty() ? few.data() : many.data();  // [i]: of i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);

  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNoRank) break;
    symbols[best] = pairs[best].result;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  ids.resize(begin + count);
}

void WordEncoder::merge_by_queue(std::vector<TokenId>& ids, size_t begin) const {
  constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  if (ids.size() - begin >= kEnd) throw std::length_error("a word without a space of over 4 GB");
  struct Symbol {
    TokenId id;
    uint32_t previous, next;
    MergeTable::Entry pair;  // with the next symbol
  };
  const auto count = static_cast<uint32_t>(ids.size() - begin);
  std::vector<Symbol> symbols(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].id = ids[begin + i];
    symbols[i].previous = i == 0 ? kEnd : i - 1;
    symbols[i].next = i + 1 == count ? kEnd : i + 1;
  }
  ids.resize(begin);

  // Lowest rank first, then leftmost. An entry is stale when its symbol has got another pair since.
  std::vector<uint64_t> entries;
  entries.reserve(count);
  for (uint32_t i = 0; i + 1 < count; ++i) {
    symbols[i].pair = merges_.find(symbols[i].id, symbols[i + 1].id);
    const uint64_t rank = symbols[i].pair.rank;
    if (rank != MergeTable::kNoRank) entries.push_back(rank << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue({},
                                                                             std::move(entries));
  const auto update_pair = [&](uint32_t i) {
    Symbol& symbol = symbols[i];
    symbol.pair = {};
    if (symbol.next != kEnd) symbol.pair = merges_.find(symbol.id, symbols[symbol.next].id);
    const uint64_t rank = symbol.pair.rank;
    if (rank != MergeTable::kNoRank) queue.push(rank << 32 | i);
  };

  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const auto i = static_cast<uint32_t>(top);
    Symbol& symbol = symbols[i];
    if (symbol.pair.rank != top >> 32) continue;
    Symbol& right = symbols[symbol.next];
    symbol.id = symbol.pair.result;
    symbol.next = right.next;
    right.pair = {};
    if (symbol.next != kEnd) symbols[symbol.next].previous = i;
    update_pair(i);
    if (symbol.previous != kEnd) update_pair(symbol.previous);
  }
  for (uint32_t i = 0; i != kEnd; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace ballast::tokenizer
