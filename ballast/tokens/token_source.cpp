// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_source.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"

namespace ballast::tokens {
namespace {

class TokensInMemory : public TokenSource {
 public:
  TokensInMemory(std::vector<int64_t> tokens, TokenSourceInfo info)
      : TokenSource(std::move(info)), tokens_(std::move(tokens)) {}
  uint64_t size() const override { return tokens_.size(); }

 protected:
  void copy(uint64_t first, std::span<int64_t> out) const override {
    std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  }

 private:
  std::vector<int64_t> tokens_;
};

class ConcatenatedTokens : public TokenSource {
 public:
  ConcatenatedTokens(std::vector<std::unique_ptr<TokenSource>> sources, TokenSourceInfo info)
      : TokenSource(std::move(info)), sources_(std::move(sources)) {
    for (const auto& source : sources_) {
      ends_.push_back(size() + source->size());
      adopt_domains(source->domains());
    }
  }
  uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<std::string>& domains() const override { return domains_; }
  uint64_t fingerprint() const override {
    std::vector<uint64_t> parts;
    for (const auto& source : sources_) parts.push_back(source->fingerprint());
    return parts.size() == 1 ? parts.front() : checksum(std::as_bytes(std::span(parts)));
  }

 protected:
  void copy(uint64_t first, std::span<int64_t> out) const override {
    for_parts(first, out, [&](size_t i, uint64_t from, std::span<int64_t> part) {
      sources_[i]->read(from, part);
    });
  }
  void copy_domains(uint64_t first, std::span<int32_t> out) const override {
    for_parts(first, out, [&](size_t i, uint64_t from, std::span<int32_t> part) {
      sources_[i]->read_domains(from, part);
      for (int32_t& domain : part) {
        if (domain >= 0) domain = merged_[i][static_cast<size_t>(domain)];
      }
    });
  }

 private:
  // Calls use(i, from, part) for each source i that `out` has a part of, which starts there at
  // `from`.
  template <typename Value, typename Use>
  void for_parts(uint64_t first, std::span<Value> out, Use use) const {
    size_t i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (; !out.empty(); ++i) {
      const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
      const size_t n = std::min<uint64_t>(out.size(), ends_[i] - first);
      use(i, first - begin, out.first(n));
      out = out.subspan(n);
      first += n;
    }
  }

  void adopt_domains(const std::vector<std::string>& names) {
    std::vector<int32_t>& merged = merged_.emplace_back();
    for (const std::string& name : names) {
      const auto found = std::find(domains_.begin(), domains_.end(), name);
      merged.push_back(static_cast<int32_t>(found - domains_.begin()));
      if (found == domains_.end()) domains_.push_back(name);
    }
  }

  std::vector<std::unique_ptr<TokenSource>> sources_;
  std::vector<uint64_t> ends_;  // position after the last token of each source
  std::vector<std::string> domains_;
  std::vector<std::vector<int32_t>> merged_;  // each source's domains, as indices into domains_
};

// Folds a field over all sources, if all of them have it.
template <typename Value, typename Fold>
void fill(std::optional<Value> TokenSourceInfo::*field, TokenSourceInfo& info,
          const std::vector<std::unique_ptr<TokenSource>>& sources, Fold fold) {
  if (info.*field || sources.empty()) return;
  std::optional<Value> all = sources.front()->info().*field;
  for (size_t i = 1; i < sources.size(); ++i) {
    const std::optional<Value>& next = sources[i]->info().*field;
    all = all && next ? fold(*all, *next) : std::nullopt;
  }
  info.*field = all;
}

void fill_from_sources(TokenSourceInfo& info,
                       const std::vector<std::unique_ptr<TokenSource>>& sources) {
  const auto largest = [](auto a, auto b) { return std::optional(std::max(a, b)); };
  const auto sum = [](auto a, auto b) { return std::optional(a + b); };
  const auto agreed = [](auto a, auto b) { return a == b ? std::optional(a) : std::nullopt; };
  const auto first = [](auto a, auto) { return std::optional(a); };
  fill(&TokenSourceInfo::vocabulary_size, info, sources, largest);
  fill(&TokenSourceInfo::end_of_text, info, sources, agreed);
  fill(&TokenSourceInfo::tokenizer_fingerprint, info, sources, agreed);
  // Folders with the same tokenizer are as good as each other.
  if (info.tokenizer_fingerprint) fill(&TokenSourceInfo::tokenizer_folder, info, sources, first);
  fill(&TokenSourceInfo::source_bytes, info, sources, sum);
  fill(&TokenSourceInfo::nats, info, sources, sum);
}

}  // namespace

TokenSource::TokenSource(TokenSourceInfo info)
    : info_(std::move(info)), limit_(info_.vocabulary_size) {}

void TokenSource::check_range(uint64_t first, uint64_t count) const {
  if (first <= size() && count <= size() - first) return;
  throw std::out_of_range(fmt::format("{}: read of tokens [{}, {}), but there are {}", info_.name,
                                      first, first + count, size()));
}

void TokenSource::read(uint64_t first, std::span<int64_t> out) const {
  check_range(first, out.size());
  copy(first, out);
  // A negative id is a huge one when taken as unsigned: one comparison finds both.
  uint64_t highest = 0;
  for (const int64_t id : out) highest = std::max(highest, static_cast<uint64_t>(id));
  const uint64_t limit = limit_.value_or(uint64_t{1} << 32);
  if (out.empty() || highest < limit) return;
  const auto bad = std::find_if(out.begin(), out.end(),
                                [&](int64_t id) { return static_cast<uint64_t>(id) >= limit; });
  fail(
      "{}: token {} at position {} is outside the vocabulary of {} tokens: the file is damaged or "
      "was written with another tokenizer",
      info_.name, *bad, first + static_cast<uint64_t>(bad - out.begin()), limit);
}

uint64_t TokenSource::fingerprint() const {
  const uint64_t tokens = size();
  StreamingChecksum sum;
  const auto add = [&](uint64_t number) { sum.update(std::as_bytes(std::span(&number, 1))); };
  add(tokens);
  if (info_.content_checksum) {
    add(*info_.content_checksum);
    return sum.value();
  }
  constexpr uint64_t kBlock = 4096, kBlocks = 256, kReadWhole = 1 << 21;
  const bool is_whole = tokens <= kReadWhole;
  const uint64_t blocks = is_whole ? (tokens + kBlock - 1) / kBlock : kBlocks;
  std::vector<int64_t> block;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t first = is_whole ? i * kBlock : i * (tokens - kBlock) / (kBlocks - 1);
    block.resize(std::min(kBlock, tokens - first));
    copy(first, block);
    sum.update(std::as_bytes(std::span(block)));
  }
  return sum.value();
}

const std::vector<std::string>& TokenSource::domains() const {
  static const std::vector<std::string> kNone;
  return kNone;
}

void TokenSource::read_domains(uint64_t first, std::span<int32_t> out) const {
  check_range(first, out.size());
  copy_domains(first, out);
}

void TokenSource::copy_domains(uint64_t /*first*/, std::span<int32_t> out) const {
  std::fill(out.begin(), out.end(), -1);
}

void TokenSource::limit_vocabulary(uint64_t vocabulary_size) {
  if (info_.vocabulary_size && *info_.vocabulary_size > vocabulary_size) {
    fail(
        "{}: its tokens are from a vocabulary of {}, but the model's has only {}: prepare the text "
        "with the model's tokenizer, or use a model with a vocabulary that large",
        info_.name, *info_.vocabulary_size, vocabulary_size);
  }
  limit_ = std::min(vocabulary_size, limit_.value_or(vocabulary_size));
}

std::optional<double> TokenSource::floor_per_token() const {
  if (!info_.nats || size() == 0) return std::nullopt;
  return *info_.nats / static_cast<double>(size());
}

std::optional<double> TokenSource::floor_per_byte() const {
  if (!info_.nats || info_.source_bytes.value_or(0) == 0) return std::nullopt;
  return *info_.nats / static_cast<double>(*info_.source_bytes);
}

std::unique_ptr<TokenSource> tokens_in_memory(std::vector<int64_t> tokens, TokenSourceInfo info) {
  return std::make_unique<TokensInMemory>(std::move(tokens), std::move(info));
}

std::unique_ptr<TokenSource> concatenate(std::vector<std::unique_ptr<TokenSource>> sources,
                                         TokenSourceInfo info) {
  fill_from_sources(info, sources);
  return std::make_unique<ConcatenatedTokens>(std::move(sources), std::move(info));
}

std::string fingerprint_text(const TokenSource& source) {
  return fmt::format("{} tokens, fingerprint {}", source.size(),
                     checksum_hex(source.fingerprint()));
}

std::string fingerprint_text(const tokenizer::Tokenizer& tokenizer) {
  return fmt::format("{} of {} tokens, fingerprint {}", tokenizer.kind(),
                     tokenizer.vocabulary_size(), checksum_hex(tokenizer.fingerprint()));
}

void require_same_tokenizer(const TokenSource& source, const tokenizer::Tokenizer& tokenizer) {
  const TokenSourceInfo& info = source.info();
  if (!info.tokenizer_fingerprint || *info.tokenizer_fingerprint == tokenizer.fingerprint()) return;
  fail(
      "{} was prepared with another tokenizer (fingerprint {}, the model's is {}): prepare the "
      "text "
      "again with --tokenizer set to the model's",
      info.name, checksum_hex(*info.tokenizer_fingerprint), checksum_hex(tokenizer.fingerprint()));
}

}  // namespace ballast::tokens
