// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "ballast/text/byte_source.h"
#include "ballast/text/piece_cut.h"
#include "ballast/text/text_reader.h"

namespace ballast::text {

// The line that separates documents.
inline constexpr std::string_view kDocumentSeparator = "<|endoftext|>";

// Cuts the bytes of one source into documents, and long documents into pieces, holding little more
// than one piece in memory. A line that is exactly kDocumentSeparator separates; its own line break
// and the one before it (LF or CRLF) belong to it, so documents written as TEXT "\n" SEPARATOR "\n"
// come back unchanged. The end of the source ends a document too. Empty documents are skipped.
class DocumentSplitter {
 public:
  // REQUIRES: source outlives this object. A document longer than `piece_bytes` is cut at the first
  // chance after that many bytes.
  explicit DocumentSplitter(ByteSource& source, size_t piece_bytes = kPieceBytes);

  // Fills text and ends_document; false at the end. The text is never empty.
  bool next(TextPiece& piece);

 private:
  struct Separator {
    size_t text_end, next_begin;
  };
  std::optional<Separator> find_separator();
  size_t find_cut();  // 0: none yet
  size_t forced_cut() const;
  void refill();
  void take(TextPiece& piece, size_t end);

  ByteSource& source_;
  size_t piece_bytes_, read_bytes_;
  std::string buffer_;
  size_t begin_ = 0;          // what is before was handed out
  size_t searched_ = 0;       // no separator starts before
  size_t cut_searched_ = 0;   // no cut is possible before
  bool in_document_ = false;  // a piece of the document at begin_ was handed out
  bool source_ended_ = false;
};

}  // namespace ballast::text
