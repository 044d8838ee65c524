// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// Where a stretch of text between added tokens starts.
enum class StretchStart : uint8_t {
  kText,       // where the text starts
  kContinued,  // where a piece starts that continues a text
  kInside,     // after an added token
};

// Text of SentencePiece-style BPE: spaces become marks (Metaspace), and where that cannot change
// ids, it is cut into words that are encoded one by one.
class CharacterWords {
 public:
  explicit CharacterWords(const BpeVocabulary& vocabulary);  // REQUIRES: pipeline.characters

  // The text with marks for spaces; `text` itself, or in `scratch` until its next use.
  std::string_view with_marks(std::string_view text, StretchStart start,
                              std::string& scratch) const;
  // Where the word that starts at `begin` ends. REQUIRES: begin < text.size().
  size_t word_end(std::string_view text, size_t begin) const;

 private:
  enum class Cuts : uint8_t {
    kNone,            // the text is one word
    kBeforeMarks,     // each mark starts a word
    kBeforeMarkRuns,  // each run of marks does: no merge joins anything to a mark after it
  };
  static Cuts cuts_of(const BpeVocabulary& vocabulary, const std::string& mark);

  std::optional<Metaspace> metaspace_;
  std::string mark_;  // empty: there is none
  Cuts cuts_;
};

}  // namespace ballast::tokenizer
