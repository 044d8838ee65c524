// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/tokenizer/bpe_tokenizer.h"
#include "ballast/tokenizer/pretokenizer.h"

namespace ballast::tokenizer {
namespace {

constexpr TokenId kSmallest = 257;  // 256 bytes and end-of-text

uint64_t pair_key(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

// A pair is formed in one step only, the one that makes the later of its two tokens: a token's
// bytes always come together in the same way, so no two merges make the same token.
struct Pair {
  uint64_t key = 0;
  int64_t count = 0;
  std::vector<uint32_t> words;  // all that had it when it was formed
};

// Pairs by key: an open-addressing table of indices, at most half full.
class PairTable {
 public:
  size_t index_of(uint64_t key) {
    if (2 * pairs_.size() >= slots_.size()) grow();
    size_t i = slot_of(key);
    while (slots_[i] != 0 && pairs_[slots_[i] - 1].key != key) i = (i + 1) & (slots_.size() - 1);
    if (slots_[i] == 0) {
      pairs_.emplace_back().key = key;
      slots_[i] = static_cast<uint32_t>(pairs_.size());
    }
    return slots_[i] - 1;
  }
  Pair& operator[](size_t index) { return pairs_[index]; }

 private:
  size_t slot_of(uint64_t key) const {
    return (key * 0x9E3779B97F4A7C15 >> 20) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(std::max<size_t>(1 << 16, 2 * slots_.size()), 0);
    for (size_t index = 0; index < pairs_.size(); ++index) {
      size_t i = slot_of(pairs_[index].key);
      while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = static_cast<uint32_t>(index + 1);
    }
  }
  std::vector<Pair> pairs_;
  std::vector<uint32_t> slots_;
};

// A pair that waits to be merged. Its count may be out of date: too high.
struct Candidate {
  int64_t count;
  uint64_t key;
  size_t pair;  // index in the table
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

class Training {
 public:
  explicit Training(const WordCounts& words);
  BpeVocabulary run(size_t num_tokens);  // without end-of-text

 private:
  struct Word {
    size_t begin;   // of its symbols
    uint32_t size;  // how many there are by now
    int64_t count;
  };
  void merge_in_word(uint32_t index, const Merge& merge);
  void take_pair(TokenId left, TokenId right, uint32_t word);
  void add_pair(TokenId left, TokenId right, uint32_t word);
  void queue_new_pairs();

  std::vector<TokenId> symbols_;
  std::vector<Word> words_;
  PairTable pairs_;
  std::vector<size_t> new_pairs_;  // formed in this step
  std::priority_queue<Candidate> queue_;
  BpeVocabulary result_;
};

Training::Training(const WordCounts& words) {
  std::array<TokenId, 256> byte_ids{};
  for (const uint8_t byte : byte_level_order()) {
    byte_ids[byte] = static_cast<TokenId>(result_.tokens.size());
    result_.tokens.push_back(byte_level_alphabet()[byte]);
  }
  for (const auto& [word, hash, count] : words.entries()) {
    const auto index = static_cast<uint32_t>(words_.size());
    words_.push_back({symbols_.size(), static_cast<uint32_t>(word.size()), int64_t(count)});
    for (const char c : word) symbols_.push_back(byte_ids[static_cast<uint8_t>(c)]);
    const TokenId* const symbols = symbols_.data() + words_.back().begin;
    for (size_t i = 0; i + 1 < word.size(); ++i) add_pair(symbols[i], symbols[i + 1], index);
  }
  queue_new_pairs();
}

void Training::take_pair(TokenId left, TokenId right, uint32_t word) {
  pairs_[pairs_.index_of(pair_key(left, right))].count -= words_[word].count;
}

void Training::add_pair(TokenId left, TokenId right, uint32_t word) {
  const size_t index = pairs_.index_of(pair_key(left, right));
  Pair& pair = pairs_[index];
  pair.count += words_[word].count;
  if (pair.words.empty()) new_pairs_.push_back(index);
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
}

void Training::queue_new_pairs() {
  for (const size_t index : new_pairs_) {
    const Pair& pair = pairs_[index];
    if (pair.count > 0) queue_.push({pair.count, pair.key, index});  // 0: gone again in this step
  }
  new_pairs_.clear();
}

void Training::merge_in_word(uint32_t index, const Merge& merge) {
  Word& word = words_[index];
  TokenId* const symbols = symbols_.data() + word.begin;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < word.size; ++i) {
    if (symbols[i] != merge.left || i + 1 == word.size || symbols[i + 1] != merge.right) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      take_pair(symbols[kept - 1], merge.left, index);
      add_pair(symbols[kept - 1], merge.result, index);
    }
    ++i;
    symbols[kept++] = merge.result;
    if (i + 1 < word.size) {
      take_pair(merge.right, symbols[i + 1], index);
      add_pair(merge.result, symbols[i + 1], index);
    }
  }
  word.size = kept;
}

BpeVocabulary Training::run(size_t num_tokens) {
  while (result_.tokens.size() < num_tokens && !queue_.empty()) {
    Candidate top = queue_.top();
    queue_.pop();
    if (const int64_t count = pairs_[top.pair].count; top.count != count) {
      top.count = count;
      if (count > 0) queue_.push(top);
      continue;
    }
    const auto left = static_cast<TokenId>(top.key >> 32), right = static_cast<TokenId>(top.key);
    const Merge merge{left, right, static_cast<TokenId>(result_.tokens.size())};
    result_.tokens.push_back(result_.tokens[left] + result_.tokens[right]);
    result_.merges.push_back(merge);
    const std::vector<uint32_t> words = std::move(pairs_[top.pair].words);
    for (const uint32_t word : words) merge_in_word(word, merge);
    queue_new_pairs();
  }
  return std::move(result_);
}

}  // namespace

BpeVocabulary train_bpe(const WordCounts& words, TokenId vocabulary_size) {
  if (vocabulary_size < kSmallest) {
    fail("a vocabulary of {} tokens is too small: it takes at least {} (256 bytes and {})",
         vocabulary_size, kSmallest, kEndOfText);
  }
  if (words.entries().empty()) fail("there is no text to train a tokenizer on");
  BpeVocabulary vocabulary = Training(words).run(vocabulary_size - 1);
  vocabulary.end_of_text = static_cast<TokenId>(vocabulary.tokens.size());
  vocabulary.added.push_back({.id = vocabulary.end_of_text});
  vocabulary.tokens.emplace_back(kEndOfText);
  return vocabulary;
}

void BpeTrainer::add(std::string_view text) {
  const LendingPool<WordCounts>::Loan counts(counts_);
  while (!text.empty()) {
    const std::string_view document = text.substr(0, text.find(kEndOfText));
    const char* const end = document.data() + document.size();
    for (const char *begin = document.data(), *next; begin < end; begin = next) {
      next = pretoken_end(begin, end);
      counts->add({begin, static_cast<size_t>(next - begin)});
    }
    text.remove_prefix(std::min(text.size(), document.size() + kEndOfText.size()));
  }
}

std::unique_ptr<Tokenizer> BpeTrainer::train(TokenId vocabulary_size) {
  auto& counts = counts_.objects();
  if (counts.empty()) counts.push_back(std::make_unique<WordCounts>());
  while (counts.size() > 1) {
    counts[0]->add_all(*counts.back());
    counts.pop_back();
  }
  BpeVocabulary vocabulary = train_bpe(*counts[0], vocabulary_size);
  if (vocabulary.tokens.size() < vocabulary_size) {
    log_warning("the text has no more pairs to merge: the vocabulary has {} tokens instead of {}",
                vocabulary.tokens.size(), vocabulary_size);
  }
  return std::make_unique<BpeTokenizer>(std::move(vocabulary));
}

}  // namespace ballast::tokenizer
