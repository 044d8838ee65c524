// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/text/text_reader.h"

namespace ballast::text {

// The documents of one file, in pieces as TextReader gives them. Throws UserError naming the file
// and the place in it.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;

  // Fills text and ends_document; false at the end. The text is never empty.
  virtual bool next(TextPiece& piece) = 0;
  // Bytes of the file that were needed so far, about; all of them at the end.
  virtual uint64_t bytes_consumed() const = 0;
  virtual uint64_t empty_documents() const { return 0; }
};

}  // namespace ballast::text
