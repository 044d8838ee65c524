// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ballast::tokenizer {

// Why a pattern is not supported, in words for the user; the caller adds file and key.
class BadPattern : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What matching needs to work in; for one thread at a time.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

  // The text as patterns must be given it: of the same size, with stand-ins for code points that
  // PCRE2's Unicode does not know as that of `tokenizers` does, and for bytes that are not UTF-8.
  // `text` itself where nothing has to change; otherwise valid until the next call.
  std::string_view subject_of(std::string_view text);

 private:
  friend class SplitPattern;
  struct State;
  std::unique_ptr<State> state_;
  std::string subject_;
};

// A regular expression that cuts text as in Hugging Face `tokenizers`, which uses Oniguruma. Here
// PCRE2 runs it. What the two understand differently is refused: the rest is literals, sets with
// general categories and \s, alternatives, repeats, (?i: ) and what is looked at ahead and behind.
// Bytes that are not valid UTF-8 count, each on its own, as a control character.
class SplitPattern {
 public:
  // Throws BadPattern for one that is not supported, or that matches nothing at all.
  explicit SplitPattern(const std::string& pattern);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) = delete;

  // Calls on_piece(begin, end) for each match, and for what is between two: together they are all
  // of `subject`. Throws UserError where the pattern takes too long. REQUIRES: from subject_of.
  template <typename OnPiece>
  void split(std::string_view subject, PatternScratch& scratch, const OnPiece& on_piece) const {
    for (size_t begin = 0; begin < subject.size();) {
      const Match match = find(subject, begin, scratch);
      if (match.begin > begin) on_piece(begin, match.begin);
      if (match.end > match.begin) on_piece(match.begin, match.end);
      begin = match.end;
    }
  }

 private:
  struct Match {
    size_t begin = 0, end = 0;
  };
  struct Code;
  // The first match that starts at or after `from`; both ends of the subject's end: none.
  Match find(std::string_view subject, size_t from, PatternScratch& scratch) const;

  std::unique_ptr<Code> code_;
};

}  // namespace ballast::tokenizer
