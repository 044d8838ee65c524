// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ballast::tokenizer {

// What a byte is that is no part of valid UTF-8 (a stray continuation, a truncated or overlong
// sequence, a surrogate): a character of its own.
inline constexpr uint32_t kNoCodePoint = 0xFFFFFFFF;

struct Utf8Character {
  uint32_t code_point;  // or kNoCodePoint
  uint32_t size;        // in bytes
};

// The character at p, which starts with a byte >= 0x80, by the table of well-formed UTF-8 (Unicode,
// 3-7). REQUIRES: p < end.
inline Utf8Character read_multibyte(const char* p, const char* end) {
  constexpr Utf8Character kInvalid{kNoCodePoint, 1};
  const auto byte = [&](int i) { return static_cast<uint8_t>(p[i]); };
  const auto is_continuation = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
  const uint32_t lead = byte(0);
  const auto left = end - p;
  if (lead < 0xC2 || lead > 0xF4 || left < 2 || !is_continuation(1)) return kInvalid;
  uint32_t code_point = byte(1) & 0x3F;
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | code_point, 2};
  if (left < 3 || !is_continuation(2)) return kInvalid;
  code_point = code_point << 6 | (byte(2) & 0x3F);
  if (lead < 0xF0) {
    code_point |= (lead & 0xF) << 12;
    if (code_point < 0x800 || (code_point >= 0xD800 && code_point < 0xE000)) return kInvalid;
    return {code_point, 3};
  }
  if (left < 4 || !is_continuation(3)) return kInvalid;
  code_point = (lead & 7) << 18 | code_point << 6 | (byte(3) & 0x3F);
  if (code_point < 0x10000 || code_point >= 0x110000) return kInvalid;
  return {code_point, 4};
}

// REQUIRES: p < end.
inline Utf8Character read_utf8(const char* p, const char* end) {
  const auto lead = static_cast<uint8_t>(*p);
  return lead < 0x80 ? Utf8Character{lead, 1} : read_multibyte(p, end);
}

// REQUIRES: code_point < 0x110000 and no surrogate.
inline void append_utf8(uint32_t c, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace ballast::tokenizer
