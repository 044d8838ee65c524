// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::tokenizer {

// An old code point of the same general category and size in UTF-8, where the libraries we use may
// not know the code point as Hugging Face `tokenizers` does; otherwise itself.
uint32_t stand_in_of(uint32_t code_point);
inline constexpr uint32_t kFirstStandIn = 0x897;  // all below stand for themselves

// Whether `tokenizers` takes it for part of a word (\w) where added tokens must be whole words.
// REQUIRES: code_point < 0x110000.
bool is_word_character(uint32_t code_point);

// Whether the normalizer of `tokenizers` leaves it alone, since it is older than the code point.
bool is_too_new_to_normalize(uint32_t code_point);

}  // namespace ballast::tokenizer
