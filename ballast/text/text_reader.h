// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ballast::text {

// What a document is for, where that is known.
enum class Split { kUnsaid, kTrain, kValid, kTest };

// A part of a document. Documents can be larger than memory, so they travel in pieces.
struct TextPiece {
  std::string text;            // any bytes
  bool ends_document = false;  // the next piece starts a new document
  uint32_t domain = 0;         // index into TextReader::domains()
  // On a document's last piece: -log p(document) in nats under the law that wrote it, its end
  // included; NaN where no such law is known.
  double nats = std::numeric_limits<double>::quiet_NaN();
  Split split = Split::kUnsaid;
  uint32_t file = 0;  // of the reader's files, counted from 0; they are read one after another
};

// Documents one after another, in an order that depends on the input alone.
class TextReader {
 public:
  virtual ~TextReader() = default;

  // Fills the next piece; false at the end. A document is cut only before white space that follows
  // a non-space, and before a line break only after an ASCII letter or digit, since some
  // pre-tokenizers keep line breaks with the signs before them. There every pre-tokenizer cuts too:
  // pieces can be encoded apart. (A run of many megabytes without such a place is cut anywhere
  // between characters.)
  virtual bool next(TextPiece& piece) = 0;

  virtual const std::vector<std::string>& domains() const = 0;
  // Input bytes (compressed ones for compressed files) in all and read so far; total 0: unknown.
  virtual uint64_t total_bytes() const = 0;
  virtual uint64_t bytes_read() const = 0;
  // Records (lines of a .jsonl, rows of a .parquet) passed over so far, since their text is empty.
  virtual uint64_t empty_documents() const { return 0; }
};

}  // namespace ballast::text
