// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ballast/text/text_reader.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokens {

struct EncodedPiece {
  std::span<const tokenizer::TokenId> ids;
  uint64_t source_bytes = 0;
  uint64_t document_key = 0;  // see document_key()
  bool ends_document = false;
  uint32_t domain = 0;
  double nats = 0;  // this and the following as in TextPiece
  text::Split split = text::Split::kUnsaid;
  uint32_t file = 0;
};

// A hash of a document by which it is recognised wherever it stands: of its first 4096 bytes.
// REQUIRES: `beginning` is the document's first piece, which is shorter than that only if the
// document is.
uint64_t document_key(std::string_view beginning);

// Encodes everything `reader` gives on `threads` threads (0: all cores) and hands it to `take` in
// the reader's order, on the caller's thread. What is taken does not depend on the number of
// threads; memory is bounded by a few megabytes for each thread.
void encode_documents(text::TextReader& reader, const tokenizer::Tokenizer& tokenizer,
                      size_t threads, const std::function<void(const EncodedPiece&)>& take);

}  // namespace ballast::tokens
