// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <optional>
#include <string_view>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/tokens/token_file.h"

namespace ballast::tokens {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "MMIDIDX\0\0"sv, kOldMagic = "TNTIDX\0\0"sv;
// magic, version u64, type u8, sequences u64; Megatron adds the number of document bounds, u64.
constexpr uint64_t kFairseqHeader = 9 + 8 + 1 + 8, kMegatronHeader = kFairseqHeader + 8;

template <typename T>
T load(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

TokenType token_type(uint8_t code, const fs::path& path) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 2:
      return TokenType::kI8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 6:
    case 7:
      fail("{} indexes floating-point numbers, not tokens", path.string());
    case 8:
      return TokenType::kU16;
    case 9:
      return TokenType::kU32;  // fairseq only, as 10
    case 10:
      return TokenType::kU64;
    default:
      fail("{} is damaged: unknown number type {}", path.string(), code);
  }
}

// The header's size, by which of the two layouts explains the file's size.
uint64_t header_bytes(std::span<const std::byte> bytes, uint64_t sequences, const fs::path& path) {
  // Bounds first: counts of a damaged file must not overflow the sums below.
  if (sequences <= bytes.size() / 12) {
    const uint64_t arrays = sequences * (sizeof(int32_t) + sizeof(int64_t));
    if (bytes.size() == kFairseqHeader + arrays) return kFairseqHeader;
    if (bytes.size() >= kMegatronHeader + arrays) {
      const auto bounds = load<uint64_t>(bytes, kFairseqHeader);
      const uint64_t rest = bytes.size() - kMegatronHeader - arrays;
      // Multimodal data sets add one byte per sequence.
      if (bounds <= rest / 8 && (rest == bounds * 8 || rest == bounds * 8 + sequences)) {
        return kMegatronHeader;
      }
    }
  }
  fail("{} is truncated or damaged: {} bytes cannot hold its {} sequences", path.string(),
       bytes.size(), sequences);
}

}  // namespace

std::unique_ptr<TokenSource> open_megatron_index(const fs::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (file.text().starts_with(kOldMagic)) {
    fail(
        "{} is an old fairseq/Megatron index (TNTIDX): write the data set again with the mmap "
        "implementation (--dataset-impl mmap)",
        path.string());
  }
  if (!file.text().starts_with(kMagic))
    fail("{} is not a Megatron or fairseq index", path.string());
  if (bytes.size() < kFairseqHeader) fail("{} is truncated", path.string());
  if (const auto version = load<uint64_t>(bytes, 9); version != 1) {
    fail("{} has index version {}; version 1 is what can be read", path.string(), version);
  }
  const TokenType type = token_type(load<uint8_t>(bytes, 17), path);
  const auto sequences = load<uint64_t>(bytes, 18);
  const uint64_t header = header_bytes(bytes, sequences, path);

  const uint64_t sizes = header, pointers = header + sequences * sizeof(int32_t);
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    const auto size = load<int32_t>(bytes, sizes + i * sizeof(int32_t));
    const auto pointer = load<int64_t>(bytes, pointers + i * sizeof(int64_t));
    if (size < 0 || static_cast<uint64_t>(pointer) != tokens * size_of(type)) {
      fail("{} is damaged: sequence {} (size {}, at byte {}) does not follow the one before it",
           path.string(), i, size, pointer);
    }
    tokens += static_cast<uint64_t>(size);
  }
  if (tokens == 0) fail("{} indexes no tokens", path.string());

  const fs::path data = fs::path(path).replace_extension(".bin");
  std::error_code code;
  const uint64_t data_bytes = fs::file_size(data, code);
  if (code)
    fail("cannot read {}, the tokens of {}: {}", data.string(), path.string(), code.message());
  if (data_bytes != tokens * size_of(type)) {
    fail("{} is truncated or not the data of {}: it has {} bytes, the index says {}", data.string(),
         path.string(), data_bytes, tokens * size_of(type));
  }
  return map_tokens(
      data, {type, 0, tokens},
      {.name = data.string(), .format = header == kFairseqHeader ? "fairseq" : "Megatron"});
}

}  // namespace ballast::tokens
