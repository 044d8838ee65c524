// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::tokenizer {

// GPT-2's pre-tokenizer: text is cut into pre-tokens, which BPE then encodes one by one. Written by
// hand, exactly equal to the matches of
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// with the Unicode classes of Hugging Face `tokenizers`. Bytes that are not valid UTF-8 (stray
// continuation bytes, truncated or overlong sequences, surrogates) count, each on its own, as one
// character that is neither letter, number nor white space.

// Returns where the pre-token that starts at `begin` ends. REQUIRES: begin < end, and that a
// pre-token starts at `begin`. What follows `end` is never read: it is the end of the text.
const char* pretoken_end(const char* begin, const char* end);

enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// The class of a code point; REQUIRES: code_point < 0x110000.
CharacterClass character_class(uint32_t code_point);

}  // namespace ballast::tokenizer
