// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ballast/system/utf8.h"

namespace ballast::tokenizer {
namespace {

// Bytes of a valid UTF-8 character at the start of `text`, which is not empty; 0: there is none.
size_t character_length(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size()); ++length) {
    const std::string_view start = text.substr(0, length);
    if (replace_invalid_utf8(start) == start) return length;
  }
  return 0;
}

// One character, or a byte that is none.
std::string escaped(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  if (character == "\\") return "\\\\";
  const auto first = static_cast<uint8_t>(character.front());
  const bool is_ascii = first < 0x80;
  const bool is_control = is_ascii ? first < 0x20 || first == 0x7F
                                   : first == 0xC2 && character.size() == 2 &&
                                         static_cast<uint8_t>(character[1]) < 0xA0;
  if (!is_control && (is_ascii || character.size() > 1)) return std::string(character);
  std::string text;
  for (const char byte : character) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return text;
}

}  // namespace

std::optional<std::string> token_text(const Tokenizer* tokenizer, int64_t token) {
  if (tokenizer == nullptr || token < 0 ||
      token >= static_cast<int64_t>(tokenizer->vocabulary_size()))
    return std::nullopt;
  std::string_view bytes = tokenizer->token_bytes(static_cast<TokenId>(token));
  std::string text;
  while (!bytes.empty()) {
    const std::string_view character =
        bytes.substr(0, std::max<size_t>(1, character_length(bytes)));
    text += escaped(character);
    bytes.remove_prefix(character.size());
  }
  return text;
}

}  // namespace ballast::tokenizer
