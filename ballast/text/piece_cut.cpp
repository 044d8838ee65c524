// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/piece_cut.h"

#include <algorithm>
#include <utility>

namespace ballast::text {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_ascii_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether the last character is one that some pre-tokenizer takes for white space: ASCII controls,
// and the Unicode spaces in UTF-8. Text that is not UTF-8 may be called space; that costs a cut
// only.
bool ends_in_space(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.back());
  if (last < 0x80) return last <= ' ' || last == 0x7f;
  if (text.ends_with("\xc2\x85") || text.ends_with("\xc2\xa0")) return true;
  if (text.size() < 3) return false;
  const std::string_view start = text.substr(text.size() - 3, 2);
  if (start == "\xe2\x80") return last <= 0x8d || (last >= 0xa8 && last <= 0xaf);  // U+2000 ...
  return (start == "\xe1\x9a" && last == 0x80) || (start == "\xe1\xa0" && last == 0x8e) ||
         (start == "\xe2\x81" && (last == 0x9f || last == 0xa0)) ||
         (start == "\xe3\x80" && last == 0x80) || (start == "\xef\xbb" && last == 0xbf);
}

}  // namespace

bool may_cut(std::string_view text, size_t begin, size_t at) {
  if (!is_ascii_space(text[at]) || ends_in_space(text.substr(begin, at - begin))) return false;
  // Some pre-tokenizers keep line breaks with the signs before them.
  const bool breaks_line = text[at] == '\n' || text[at] == '\r';
  return !breaks_line || is_ascii_alphanumeric(text[at - 1]);
}

size_t character_start(std::string_view text, size_t at) {
  const auto is_inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  for (size_t back = 0; back < 3 && at > 0 && is_inside(text[at]); ++back) --at;
  return at;
}

void DocumentPieces::start(std::string document) {
  document_ = std::move(document);
  begin_ = 0;
}

void DocumentPieces::next(TextPiece& piece) {
  const size_t end = find_cut();
  piece.ends_document = end == document_.size();
  if (begin_ == 0 && piece.ends_document) {
    piece.text = document_;
  } else {
    piece.text.assign(document_, begin_, end - begin_);
  }
  begin_ = end;
}

size_t DocumentPieces::find_cut() const {
  const size_t rest = document_.size() - begin_;
  if (rest <= piece_bytes_) return document_.size();
  const size_t last = begin_ + std::min(rest, kLongestPiece);
  for (size_t at = begin_ + piece_bytes_; at < last; ++at) {
    if (may_cut(document_, begin_, at)) return at;
  }
  return last == document_.size() ? last : character_start(document_, last);
}

}  // namespace ballast::text
