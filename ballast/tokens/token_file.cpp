// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_file.h"

#include <array>
#include <cstring>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast::tokens {
namespace {

template <typename T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
}

class MappedTokens : public TokenSource {
 public:
  MappedTokens(const fs::path& path, TokenLayout layout, TokenSourceInfo info)
      : TokenSource(std::move(info)), file_(path), layout_(layout) {
    const uint64_t bytes = file_.bytes().size(), width = size_of(layout.type);
    if (layout.offset > bytes || layout.count > (bytes - layout.offset) / width) {
      fail("{} is truncated: {} tokens of {} bytes should follow byte {}, but it has {} bytes",
           path.string(), layout.count, width, layout.offset, bytes);
    }
  }
  uint64_t size() const override { return layout_.count; }

 protected:
  void copy(uint64_t first, std::span<int64_t> out) const override {
    const std::byte* from = file_.bytes().data() + layout_.offset + first * size_of(layout_.type);
    switch (layout_.type) {
      case TokenType::kU8:
        return widen<uint8_t>(from, out);
      case TokenType::kI8:
        return widen<int8_t>(from, out);
      case TokenType::kU16:
        return widen<uint16_t>(from, out);
      case TokenType::kI16:
        return widen<int16_t>(from, out);
      case TokenType::kU32:
        return widen<uint32_t>(from, out);
      case TokenType::kI32:
        return widen<int32_t>(from, out);
      case TokenType::kU64:
        return widen<uint64_t>(from, out);
      case TokenType::kI64:
        return widen<int64_t>(from, out);
    }
  }

 private:
  MappedFile file_;
  TokenLayout layout_;
};

constexpr uint64_t kLlmcHeaderBytes = 1024;

struct LlmcKind {
  int32_t magic, version;
  TokenType type;
};
constexpr std::array kLlmcKinds{LlmcKind{20240520, 1, TokenType::kU16},   // GPT-2 ids
                                LlmcKind{20240801, 7, TokenType::kU32}};  // Llama 3 ids

}  // namespace

uint64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kU16:
    case TokenType::kI16:
      return 2;
    case TokenType::kU32:
    case TokenType::kI32:
      return 4;
    case TokenType::kU64:
    case TokenType::kI64:
      return 8;
  }
  throw std::invalid_argument("size_of: not a TokenType");
}

std::unique_ptr<TokenSource> map_tokens(const fs::path& file, TokenLayout layout,
                                        TokenSourceInfo info) {
  return std::make_unique<MappedTokens>(file, layout, std::move(info));
}

std::unique_ptr<TokenSource> open_bin_file(const fs::path& path) {
  const MappedFile file(path);
  const uint64_t bytes = file.bytes().size();
  if (bytes == 0) fail("{} is empty: it holds no tokens", path.string());
  std::array<int32_t, 3> header{};  // magic, version, tokens
  if (bytes >= sizeof(header)) std::memcpy(header.data(), file.bytes().data(), sizeof(header));
  for (const LlmcKind& kind : kLlmcKinds) {
    if (header[0] != kind.magic) continue;
    if (header[1] != kind.version) {
      fail("{} is an llm.c token file of version {}; version {} is what can be read", path.string(),
           header[1], kind.version);
    }
    const uint64_t content = bytes < kLlmcHeaderBytes ? 0 : bytes - kLlmcHeaderBytes;
    if (header[2] < 0 || content != static_cast<uint64_t>(header[2]) * size_of(kind.type)) {
      fail("{} is truncated or damaged: its llm.c header says {} tokens, but {} bytes follow it",
           path.string(), header[2], content);
    }
    const auto count = static_cast<uint64_t>(header[2]);
    if (count == 0) fail("{} holds no tokens", path.string());
    return map_tokens(path, {kind.type, kLlmcHeaderBytes, count},
                      {.name = path.string(), .format = "llm.c"});
  }
  if (bytes % 2 != 0) {
    fail(
        "{} is not a token file: it has no llm.c header, no .idx beside it, and an odd number of "
        "bytes, so it cannot be nanoGPT's uint16 tokens either",
        path.string());
  }
  return map_tokens(path, {TokenType::kU16, 0, bytes / 2},
                    {.name = path.string(), .format = "nanoGPT"});
}

}  // namespace ballast::tokens
