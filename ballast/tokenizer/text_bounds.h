// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

// Whether the texts of a model, its documents and prompts, stand within their tokenizer's frame.
enum class Framing { kPlain, kFramed };

bool has_frame(const Tokenizer& tokenizer);

// The frame's begin; none where texts are plain.
std::vector<TokenId> begin_of_document(const Tokenizer& tokenizer, Framing framing);
// What stands after a document: the frame's end, then end-of-text, unless that is the frame's last.
std::vector<TokenId> end_of_document(const Tokenizer& tokenizer, Framing framing);

// What a model reads before a text, at least one token: begin_of_document(), or else end-of-text,
// which stands before every document but the first.
std::vector<TokenId> start_of_text(const Tokenizer& tokenizer, Framing framing);

}  // namespace ballast::tokenizer
