// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ballast/text/text_reader.h"

namespace ballast::text {

// Documents longer than this travel in pieces, cut at the first chance after so many bytes.
inline constexpr size_t kPieceBytes = 1 << 20;
// A run of so many bytes without a place to cut is cut all the same, so that memory stays bounded
// whatever the input.
inline constexpr size_t kLongestPiece = 16 << 20;

// Whether a piece that starts at `begin` may end before `at`: there is white space that follows a
// character which no pre-tokenizer takes for white space. REQUIRES: begin < at < text.size().
bool may_cut(std::string_view text, size_t begin, size_t at);
// The start of the UTF-8 character that holds the byte at `at`.
size_t character_start(std::string_view text, size_t at);

// Hands out a document that is whole in memory piece by piece.
class DocumentPieces {
 public:
  explicit DocumentPieces(size_t piece_bytes = kPieceBytes) : piece_bytes_(piece_bytes) {}

  void start(std::string document);  // REQUIRES: is_done()
  bool is_done() const { return begin_ == document_.size(); }
  // Fills text and ends_document. REQUIRES: !is_done().
  void next(TextPiece& piece);

 private:
  size_t find_cut() const;

  size_t piece_bytes_;
  std::string document_;
  size_t begin_ = 0;  // what is before was handed out
};

}  // namespace ballast::text
