// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "ballast/tokens/token_source.h"

namespace ballast::tokens {

enum class TokenType { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64 };
uint64_t size_of(TokenType type);  // bytes

// Where the tokens of one file lie: `count` little-endian numbers from byte `offset` on.
struct TokenLayout {
  TokenType type = TokenType::kU16;
  uint64_t offset = 0;
  uint64_t count = 0;
};

// The tokens of a memory-mapped file. Throws UserError if the file is shorter than the layout.
std::unique_ptr<TokenSource> map_tokens(const std::filesystem::path& file, TokenLayout layout,
                                        TokenSourceInfo info);

// llm.c `.bin` (magic 20240520 or 20240801 and a header of 1024 bytes) or nanoGPT (uint16, no
// header).
std::unique_ptr<TokenSource> open_bin_file(const std::filesystem::path& file);

// Megatron or fairseq: `index` is the `.idx`; the `.bin` of the same name lies beside it.
std::unique_ptr<TokenSource> open_megatron_index(const std::filesystem::path& index);

}  // namespace ballast::tokens
