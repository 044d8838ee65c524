// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/white_space.h"

#include <algorithm>
#include <cstdint>

namespace ballast::inference {

size_t space_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0U; };
  const uint32_t first = byte(0), second = byte(1), third = byte(2);
  if (text.empty()) return 0;
  if (first == ' ' || (first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x1f))
    return 1;
  if (first == 0xc2 && (second == 0x85 || second == 0xa0)) return 2;
  const bool is_space = (first == 0xe1 && second == 0x9a && third == 0x80) ||  // U+1680
                        (first == 0xe2 && second == 0x80 && third >= 0x80 &&
                         (third <= 0x8a || third == 0xa8 || third == 0xa9 || third == 0xaf)) ||
                        (first == 0xe2 && second == 0x81 && third == 0x9f) ||  // U+205F
                        (first == 0xe3 && second == 0x80 && third == 0x80);    // U+3000
  return is_space ? 3 : 0;
}

std::string_view without_space_at_end(std::string_view text) {
  for (;;) {
    size_t length = 0;
    for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size)
      if (space_length(text.substr(text.size() - size)) == size) length = size;
    if (length == 0) return text;
    text.remove_suffix(length);
  }
}

std::string_view without_space_around(std::string_view text) {
  while (const size_t length = space_length(text)) text.remove_prefix(length);
  return without_space_at_end(text);
}

}  // namespace ballast::inference
