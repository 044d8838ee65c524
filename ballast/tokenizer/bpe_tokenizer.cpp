// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/character_symbols.h"
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

struct BpeTokenizer::Scratch {
  WordCache cache;
  Normalizer::Scratch normalized;
  std::string marked;
  PatternScratch pattern;
};

namespace {

std::vector<std::optional<SplitPattern>> patterns_of(const TextPipeline& pipeline) {
  std::vector<std::optional<SplitPattern>> patterns;
  for (const SplitStep& step : pipeline.splits) {
    if (step.pattern.empty()) {
      patterns.emplace_back();
    } else {
      patterns.emplace_back(SplitPattern(step.pattern));
    }
  }
  return patterns;
}

// What a token stands for within a text.
std::string decoded(std::string_view token, const TextPipeline& pipeline) {
  if (!pipeline.characters) return bytes_of_token(token);
  std::string text(token);
  for (const Replace& replace : pipeline.characters->decoder) {
    const std::string before = std::exchange(text, "");
    append_replaced(before, replace, text);
  }
  const auto byte = pipeline.characters->decodes_bytes ? byte_of_token(text) : std::nullopt;
  return byte ? std::string(1, static_cast<char>(*byte)) : text;
}

}  // namespace

BpeTokenizer::~BpeTokenizer() = default;

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, std::vector<KeptFile> files)
    : vocabulary_(std::move(vocabulary)),
      files_(std::move(files)),
      normalizer_(vocabulary_.pipeline.normalizer),
      added_(vocabulary_),
      only_gpt2_split_(vocabulary_.pipeline.splits == TextPipeline().splits),
      splits_(patterns_of(vocabulary_.pipeline)),
      words_(vocabulary_),
      fingerprint_(fingerprint_of(vocabulary_)) {
  const TextPipeline& pipeline = vocabulary_.pipeline;
  if (pipeline.characters) characters_.emplace(vocabulary_);
  for (const std::string& token : vocabulary_.tokens) {
    token_bytes_.push_back(decoded(token, pipeline));
  }
  Normalizer::Scratch scratch;
  for (const AddedToken& token : vocabulary_.added) {
    // One that was normalized on its way in comes out so too.
    std::string_view content = vocabulary_.tokens[token.id];
    if (token.normalized) content = normalizer_.apply(content, true, scratch);
    token_bytes_[token.id] =
        pipeline.characters ? decoded(content, pipeline) : std::string(content);
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  encode_from(StretchStart::kText, text, ids);
}

void BpeTokenizer::encode_continued(std::string_view text, std::vector<TokenId>& ids) const {
  encode_from(StretchStart::kContinued, text, ids);
}

void BpeTokenizer::encode_from(StretchStart start, std::string_view text,
                               std::vector<TokenId>& ids) const {
  const LendingPool<Scratch>::Loan scratch(scratch_);
  IdBuffer out(ids);
  const auto on_token = [&](TokenId id) { out.push(id); };
  const auto on_raw = [&](std::string_view raw) {
    const StretchStart raw_start = raw.data() == text.data() ? start : StretchStart::kInside;
    const std::string_view normalized =
        normalizer_.apply(raw, raw_start != StretchStart::kContinued, scratch->normalized);
    added_.split_normalized(
        normalized,
        [&](std::string_view stretch) {
          const bool is_first = stretch.data() == normalized.data();
          encode_stretch(stretch, is_first ? raw_start : StretchStart::kInside, *scratch, out);
        },
        on_token);
  };
  added_.split_raw(text, on_raw, on_token);
  out.flush();
}

void BpeTokenizer::encode_stretch(std::string_view text, StretchStart start, Scratch& scratch,
                                  IdBuffer& out) const {
  if (characters_) return encode_characters(text, start, scratch, out);
  if (only_gpt2_split_) return encode_gpt2(text, scratch, out);
  encode_splits(0, text, scratch.pattern.subject_of(text), scratch, out);
}

void BpeTokenizer::encode_gpt2(std::string_view text, Scratch& scratch, IdBuffer& out) const {
  const char* const end = text.data() + text.size();
  for (const char *begin = text.data(), *next; begin < end; begin = next) {
    next = pretoken_end(begin, end);
    encode_word({begin, next}, end, scratch, out);
  }
}

void BpeTokenizer::encode_splits(size_t step, std::string_view text, std::string_view subject,
                                 Scratch& scratch, IdBuffer& out) const {
  const char* const end = text.data() + text.size();
  if (step == splits_.size()) return encode_word(text, end, scratch, out);
  const bool is_last = step + 1 == splits_.size();
  const auto on_piece = [&](size_t from, size_t to) {
    const std::string_view piece = text.substr(from, to - from);
    if (is_last) return encode_word(piece, end, scratch, out);
    encode_splits(step + 1, piece, subject.substr(from, to - from), scratch, out);
  };
  if (splits_[step]) return splits_[step]->split(subject, scratch.pattern, on_piece);
  for (const char *begin = text.data(), *next; begin < end; begin = next) {
    next = pretoken_end(begin, end);
    on_piece(static_cast<size_t>(begin - text.data()), static_cast<size_t>(next - text.data()));
  }
}

void BpeTokenizer::encode_characters(std::string_view text, StretchStart start, Scratch& scratch,
                                     IdBuffer& out) const {
  text = characters_->with_marks(text, start, scratch.marked);
  const char* const end = text.data() + text.size();
  for (size_t begin = 0, next; begin < text.size(); begin = next) {
    next = characters_->word_end(text, begin);
    encode_word(text.substr(begin, next - begin), end, scratch, out);
  }
}

inline void BpeTokenizer::encode_word(std::string_view word, const char* end, Scratch& scratch,
                                      IdBuffer& out) const {
  if (word.size() > WordCache::kMaxBytes) return encode_uncached(word, nullptr, {}, out);
  const WordCache::Key key = WordCache::key_of(word.data(), word.size(), end);
  const WordCache::Slot& slot = scratch.cache.slot(key);
  if (slot.key == key) {
    out.push(slot);
  } else {
    encode_uncached(word, &scratch.cache, key, out);
  }
}

void BpeTokenizer::encode_uncached(std::string_view word, WordCache* cache, WordCache::Key key,
                                   IdBuffer& out) const {
  std::vector<TokenId>& ids = out.scratch();
  words_.encode(word, ids);
  if (cache != nullptr && ids.size() <= WordCache::kMaxIds) {
    out.push(cache->put(key, ids));
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

std::string BpeTokenizer::decode_text(const std::vector<TokenId>& ids) const {
  std::string text = decode(ids);
  if (vocabulary_.pipeline.characters) {
    const size_t limit = vocabulary_.pipeline.characters->stripped_spaces;
    text.erase(0, std::min({limit, text.find_first_not_of(' '), text.size()}));
  }
  return text;
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  make_folder(folder);
  for (const KeptFile& file : files_) write_text_atomically(folder / file.name, file.bytes);
  if (files_.empty()) write_tokenizer_json(vocabulary_, folder);
  // They would be taken for GPT-2's.
  if (vocabulary_.pipeline == TextPipeline()) write_vocab_and_merges(vocabulary_, folder);
}

ByteTokenizer::ByteTokenizer()
    : added_(byte_vocabulary()), fingerprint_(fingerprint_of(byte_vocabulary())) {}

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  added_.split_raw(
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
