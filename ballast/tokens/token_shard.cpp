// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/tokens/token_file.h"

namespace ballast::tokens {
namespace {

constexpr std::array<char, 8> kMagic = {'B', 'L', 'S', 'T', 'T', 'O', 'K', '\0'};
constexpr uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t token_bytes = 0;
  uint64_t tokens = 0;
  uint64_t parts = 0;
  uint64_t documents = 0;
  uint64_t source_bytes = 0;
  uint32_t vocabulary_size = 0;
  uint32_t end_of_text = 0;
  uint64_t tokenizer_fingerprint = 0;
  uint64_t content_checksum = 0;
  uint64_t header_checksum = 0;  // of the bytes before it
};
static_assert(sizeof(Header) == 80 && std::is_trivially_copyable_v<Header>);
static_assert(std::endian::native == std::endian::little, "token files are little-endian");

uint64_t header_checksum(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_checksum)));
}

// The document table starts at a multiple of 8, so that it can be used where it is mapped.
uint64_t table_offset(const Header& header) {
  return sizeof(Header) + (header.tokens * header.token_bytes + 7) / 8 * 8;
}

Header read_header(const MappedFile& file, const fs::path& path) {
  const auto bytes = file.bytes();
  if (!file.text().starts_with(std::string_view(kMagic.data(), kMagic.size()))) {
    fail("{} is not a token shard of ballast", path.string());
  }
  Header header;
  if (bytes.size() < sizeof(header)) fail("{} is truncated within its header", path.string());
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion) {
    fail("{} has shard version {}; this program reads version {}: prepare the data again",
         path.string(), header.version, kVersion);
  }
  if (header.header_checksum != header_checksum(header)) {
    fail("{} is damaged: its header does not have the checksum it names: prepare the data again",
         path.string());
  }
  // The checksum is no protection against numbers that overflow the sum of sizes.
  const uint64_t size = bytes.size();
  const bool fits = (header.token_bytes == 2 || header.token_bytes == 4) &&
                    header.tokens <= size / header.token_bytes &&
                    header.parts <= size / sizeof(DocumentPart) &&
                    table_offset(header) + header.parts * sizeof(DocumentPart) == size;
  if (!fits) {
    fail(
        "{} is truncated or damaged: {} bytes do not hold its {} tokens and {} documents: prepare "
        "the data again",
        path.string(), size, header.tokens, header.parts);
  }
  return header;
}

[[noreturn]] void fail_at_row(const fs::path& path, size_t row) {
  fail("{} is damaged: row {} of its document table is wrong: prepare the data again",
       path.string(), row);
}

// The tokens of a shard with the domains of its documents, read where the table is mapped.
class TokensOfDomains : public TokenSource {
 public:
  TokensOfDomains(std::unique_ptr<TokenSource> tokens, TokenShard shard,
                  std::vector<std::string> domains)
      : TokenSource(tokens->info()),
        tokens_(std::move(tokens)),
        shard_(std::move(shard)),
        domains_(std::move(domains)) {}
  uint64_t size() const override { return tokens_->size(); }
  const std::vector<std::string>& domains() const override { return domains_; }

 protected:
  void copy(uint64_t first, std::span<int64_t> out) const override { tokens_->read(first, out); }
  void copy_domains(uint64_t first, std::span<int32_t> out) const override {
    const auto parts = shard_.parts();
    const auto after = std::ranges::upper_bound(parts, first, {}, &DocumentPart::first_token);
    auto row = static_cast<size_t>(std::max<ptrdiff_t>(after - parts.begin() - 1, 0));
    for (; !out.empty(); ++row) {
      // Large data sets are not verified before use: a damaged table must not lead us astray.
      if (row >= parts.size() || parts[row].first_token > first) fail_at_row(shard_.path(), row);
      const uint64_t end = row + 1 < parts.size() ? parts[row + 1].first_token : size();
      if (end <= first || parts[row].domain >= domains_.size()) fail_at_row(shard_.path(), row);
      const auto n = static_cast<size_t>(std::min<uint64_t>(out.size(), end - first));
      std::fill_n(out.begin(), n, static_cast<int32_t>(parts[row].domain));
      out = out.subspan(n);
      first += n;
    }
  }

 private:
  std::unique_ptr<TokenSource> tokens_;
  TokenShard shard_;
  std::vector<std::string> domains_;
};

}  // namespace

TokenizerIdentity identity_of(const tokenizer::Tokenizer& tokenizer) {
  return {.kind = std::string(tokenizer.kind()),
          .vocabulary_size = tokenizer.vocabulary_size(),
          .end_of_text = tokenizer.end_of_text(),
          .fingerprint = tokenizer.fingerprint()};
}

TokenShardWriter::TokenShardWriter(const fs::path& path, const TokenizerIdentity& tokenizer)
    : tokenizer_(tokenizer), file_(path) {
  const std::array<std::byte, sizeof(Header)> zeros{};  // not a shard until finish()
  file_.write(zeros);
}

void TokenShardWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  checksum_.update(bytes);
}

void TokenShardWriter::begin_part(uint32_t domain, PartKind kind) {
  parts_.push_back({.first_token = counts_.tokens, .domain = domain, .kind = kind});
  counts_.parts += 1;
  counts_.documents += kind == PartKind::kBeginsHere;
}

void TokenShardWriter::append(std::span<const tokenizer::TokenId> ids, uint64_t source_bytes) {
  if (parts_.empty()) throw std::logic_error("TokenShardWriter: append before begin_part");
  for (const tokenizer::TokenId id : ids) {
    if (id >= tokenizer_.vocabulary_size) {
      throw std::logic_error(fmt::format("TokenShardWriter: id {} in a vocabulary of {}", id,
                                         tokenizer_.vocabulary_size));
    }
  }
  counts_.tokens += ids.size();
  counts_.source_bytes += source_bytes;
  parts_.back().source_bytes += source_bytes;
  if (tokenizer_.token_bytes() == 4) return write(std::as_bytes(ids));
  encoded_.resize(ids.size() * sizeof(uint16_t));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto narrow = static_cast<uint16_t>(ids[i]);
    std::memcpy(encoded_.data() + i * sizeof(narrow), &narrow, sizeof(narrow));
  }
  write(encoded_);
}

ShardCounts TokenShardWriter::finish() {
  const uint64_t zero = 0;
  write(std::as_bytes(std::span(&zero, 1)).first((8 - file_.size() % 8) % 8));
  write(std::as_bytes(std::span(parts_)));
  counts_.checksum = checksum_.value();
  Header header{.token_bytes = tokenizer_.token_bytes(),
                .tokens = counts_.tokens,
                .parts = counts_.parts,
                .documents = counts_.documents,
                .source_bytes = counts_.source_bytes,
                .vocabulary_size = tokenizer_.vocabulary_size,
                .end_of_text = tokenizer_.end_of_text,
                .tokenizer_fingerprint = tokenizer_.fingerprint,
                .content_checksum = counts_.checksum};
  header.header_checksum = header_checksum(header);
  file_.write_at(0, std::as_bytes(std::span(&header, 1)));
  file_.finish();
  return counts_;
}

TokenShard::TokenShard(const fs::path& path) : path_(path), file_(path) {
  const Header header = read_header(file_, path_);
  counts_ = {.tokens = header.tokens,
             .documents = header.documents,
             .parts = header.parts,
             .source_bytes = header.source_bytes,
             .checksum = header.content_checksum};
  tokenizer_ = {.kind = "",
                .vocabulary_size = header.vocabulary_size,
                .end_of_text = header.end_of_text,
                .fingerprint = header.tokenizer_fingerprint};
  if (tokenizer_.token_bytes() != header.token_bytes ||
      tokenizer_.end_of_text >= tokenizer_.vocabulary_size) {
    fail("{} is damaged: tokens of {} bytes and end-of-text {} do not fit a vocabulary of {}",
         path_.string(), header.token_bytes, header.end_of_text, header.vocabulary_size);
  }
  parts_ = {reinterpret_cast<const DocumentPart*>(file_.bytes().data() + table_offset(header)),
            header.parts};
}

std::unique_ptr<TokenSource> TokenShard::tokens(std::vector<std::string> domains) const {
  auto tokens = map_tokens(path_,
                           {tokenizer_.token_bytes() == 2 ? TokenType::kU16 : TokenType::kU32,
                            sizeof(Header), counts_.tokens},
                           {.name = path_.string(),
                            .format = "ballast",
                            .vocabulary_size = tokenizer_.vocabulary_size,
                            .end_of_text = tokenizer_.end_of_text,
                            .tokenizer_fingerprint = tokenizer_.fingerprint,
                            .source_bytes = counts_.source_bytes,
                            .content_checksum = counts_.checksum});
  if (domains.empty()) return tokens;
  // It outlives this object, and so has a mapping of its own.
  return std::make_unique<TokensOfDomains>(std::move(tokens), TokenShard(path_),
                                           std::move(domains));
}

void TokenShard::for_blocks(
    uint64_t first, uint64_t last,
    const std::function<void(std::span<const tokenizer::TokenId>)>& use) const {
  constexpr uint64_t kBlock = 1 << 16, kBlocksInMemory = 64;
  std::vector<int64_t> wide;
  std::vector<tokenizer::TokenId> ids;
  while (first < last) {
    const auto source = tokens();  // mapped anew: the pages of the blocks before are given back
    for (uint64_t i = 0; i < kBlocksInMemory && first < last; ++i, first += ids.size()) {
      wide.resize(std::min(kBlock, last - first));
      source->read(first, wide);
      ids.assign(wide.begin(), wide.end());
      use(ids);
    }
  }
}

void TokenShard::verify() const {
  constexpr size_t kBlock = 1 << 22;
  const auto content = file_.bytes().subspan(sizeof(Header));
  StreamingChecksum actual;
  for (size_t at = 0; at < content.size(); at += kBlock) {
    actual.update(content.subspan(at, std::min(kBlock, content.size() - at)));
    file_.drop(sizeof(Header) + at, kBlock);
  }
  if (actual.value() != counts_.checksum) {
    fail("{} is damaged: its content has checksum {}, its header says {}: prepare the data again",
         path_.string(), checksum_hex(actual.value()), checksum_hex(counts_.checksum));
  }
  verify_parts();
  for_blocks(0, counts_.tokens,
             [](std::span<const tokenizer::TokenId>) {});  // every id is checked as it is read
}

void TokenShard::verify_parts() const {
  uint64_t source_bytes = 0, documents = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const DocumentPart& part = parts_[i];
    const uint64_t next = i + 1 < parts_.size() ? parts_[i + 1].first_token : counts_.tokens;
    source_bytes += part.source_bytes;
    documents += part.kind == PartKind::kBeginsHere;
    const bool kind_fits = part.kind == PartKind::kBeginsHere ||
                           (part.kind == PartKind::kBeganInEarlierShard && i == 0);
    if ((i == 0 && part.first_token != 0) || part.first_token >= next || !kind_fits) {
      fail_at_row(path_, i);
    }
  }
  if (source_bytes != counts_.source_bytes || documents != counts_.documents ||
      (parts_.empty() && counts_.tokens > 0)) {
    fail("{} is damaged: its document table does not add up to its header", path_.string());
  }
}

bool is_token_shard(const fs::path& path) {
  const MappedFile file(path);
  return file.text().starts_with(std::string_view(kMagic.data(), kMagic.size()));
}

}  // namespace ballast::tokens
