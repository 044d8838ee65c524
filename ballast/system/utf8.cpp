// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ballast {
namespace {

// Bytes of the valid sequence at the start of `text`; 0: there is none.
size_t valid_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0U; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {  // no overlong forms, no surrogates
    const bool excluded = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F);
    return !excluded && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {  // nothing beyond U+10FFFF
    const bool excluded = (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
    return !excluded && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// C0 but tabs and line ends, DEL, and C1, which some terminals obey too.
bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1)
    return first == 0x7F || (first < 0x20 && first != '\t' && first != '\n');
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

// Bytes at the end of `text` that more bytes could make a character of.
size_t unfinished_length(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(3, text.size()); ++length) {
    const std::string_view end = text.substr(text.size() - length);
    const auto first = static_cast<uint8_t>(end[0]);
    if ((first & 0xC0U) == 0x80U) continue;
    const size_t whole = first > 0xF4 || first < 0xC2 ? 1
                         : first >= 0xF0              ? 4
                         : first >= 0xE0              ? 3
                                                      : 2;
    return whole > length ? length : 0;
  }
  return 0;
}

// What is held and the piece, but for the start of a character, which is held on.
std::string take_whole(std::string& held, std::string_view piece) {
  held += piece;
  const size_t ready = held.size() - unfinished_length(held);
  std::string whole = held.substr(0, ready);
  held.erase(0, ready);
  return whole;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = valid_length(text);
    out.append(length > 0 ? text.substr(0, length) : "\xEF\xBF\xBD");
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = valid_length(text), taken = std::max<size_t>(length, 1);
    const std::string_view character = text.substr(0, taken);
    if (length > 0 && !is_control(character)) {
      out.append(character);
    } else {
      for (const char byte : character) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string ValidUtf8Stream::add(std::string_view piece) {
  return replace_invalid_utf8(take_whole(held_, piece));
}

std::string ValidUtf8Stream::rest() { return replace_invalid_utf8(std::exchange(held_, {})); }

std::string PrintableStream::add(std::string_view piece) {
  return printable(take_whole(held_, piece));
}

std::string PrintableStream::rest() { return printable(std::exchange(held_, {})); }

}  // namespace ballast
