// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/pretokenizer.h"

namespace ballast::tokenizer {

// Ids on their way to the caller's vector, which then need not grow one by one.
class BpeTokenizer::IdBuffer {
 public:
  explicit IdBuffer(std::vector<TokenId>& ids) : ids_(ids) {}

  void push(TokenId id) {
    make_room();
    buffer_[size_++] = id;
  }
  void push(const WordCache::Slot& slot) {
    make_room();
    // Always four, of which `count` stay: most words have fewer, and a fixed size is fastest.
    std::memcpy(&buffer_[size_], slot.ids.data(), 4 * sizeof(TokenId));
    if (slot.count > 4) {
      std::memcpy(&buffer_[size_ + 4], &slot.ids[4], (slot.count - 4) * sizeof(TokenId));
    }
    size_ += slot.count;
  }
  void push(const std::vector<TokenId>& word) {
    flush();
    ids_.insert(ids_.end(), word.begin(), word.end());
  }
  void flush() {
    ids_.insert(ids_.end(), buffer_.begin(), buffer_.begin() + size_);
    size_ = 0;
  }

  std::vector<TokenId>& scratch() {
    scratch_.clear();
    return scratch_;
  }

 private:
  void make_room() {
    if (size_ > kSize) flush();
  }
  static constexpr size_t kSize = 1024;
  std::vector<TokenId>& ids_;
  std::vector<TokenId> scratch_;
  std::array<TokenId, kSize + 1 + WordCache::kMaxIds> buffer_;
  size_t size_ = 0;
};

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      added_(vocabulary_),
      words_(vocabulary_),
      fingerprint_(fingerprint_of(vocabulary_)) {
  for (const std::string& token : vocabulary_.tokens) token_bytes_.push_back(bytes_of_token(token));
  for (const AddedToken& token : vocabulary_.added) {
    token_bytes_[token.id] = vocabulary_.tokens[token.id];
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const LendingPool<WordCache>::Loan cache(caches_);
  IdBuffer out(ids);
  added_.split(
      text, [&](std::string_view stretch) { encode_stretch(stretch, *cache, out); },
      [&](TokenId id) { out.push(id); });
  out.flush();
}

void BpeTokenizer::encode_stretch(std::string_view text, WordCache& cache, IdBuffer& out) const {
  const char* const end = text.data() + text.size();
  for (const char *begin = text.data(), *next; begin < end; begin = next) {
    next = pretoken_end(begin, end);
    const auto size = static_cast<size_t>(next - begin);
    if (size > WordCache::kMaxBytes) {
      encode_uncached({begin, size}, nullptr, {}, out);
      continue;
    }
    const WordCache::Key key = WordCache::key_of(begin, size, end);
    WordCache::Slot& slot = cache.slot(key);
    if (slot.key == key) {
      out.push(slot);
    } else {
      encode_uncached({begin, size}, &slot, key, out);
    }
  }
}

void BpeTokenizer::encode_uncached(std::string_view word, WordCache::Slot* slot, WordCache::Key key,
                                   IdBuffer& out) const {
  std::vector<TokenId>& ids = out.scratch();
  words_.encode(word, ids);
  if (slot != nullptr && ids.size() <= WordCache::kMaxIds) {
    slot->key = key;
    slot->count = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot->ids.begin());
    out.push(*slot);
  } else {
    out.push(ids);
  }
}

std::string_view BpeTokenizer::token_bytes(TokenId id) const {
  if (id < token_bytes_.size()) return token_bytes_[id];
  fail(
      "token id {} is out of range: the vocabulary has {} tokens. Is this the tokenizer that made "
      "the data?",
      id, token_bytes_.size());
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  write_vocab_and_merges(vocabulary_, folder);
  write_tokenizer_json(vocabulary_, folder);
}

ByteTokenizer::ByteTokenizer()
    : added_(byte_vocabulary()), fingerprint_(fingerprint_of(byte_vocabulary())) {}

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  added_.split(
      text,
      [&](std::string_view stretch) {
        const size_t begin = ids.size();
        ids.resize(begin + stretch.size());
        std::transform(stretch.begin(), stretch.end(), ids.begin() + begin,
                       [](char c) { return static_cast<uint8_t>(c); });
      },
      [&](TokenId id) { ids.push_back(id); });
}

std::string_view ByteTokenizer::token_bytes(TokenId id) const {
  static const std::array<char, 256> bytes = [] {
    std::array<char, 256> result{};
    for (int b = 0; b < 256; ++b) result[b] = static_cast<char>(b);
    return result;
  }();
  if (id < 256) return {&bytes[id], 1};
  if (id == 256) return kEndOfText;
  fail(
      "token id {} is out of range: the byte vocabulary has 257 tokens. Is this the tokenizer that "
      "made the data?",
      id);
}

void ByteTokenizer::save(const std::filesystem::path& folder) const {
  write_tokenizer_json(byte_vocabulary(), folder);
}

}  // namespace ballast::tokenizer
