// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

// A token for people, on one line and valid UTF-8: control characters and bytes that are not UTF-8
// as \n or \x1b, a backslash as two. Nothing: there is no tokenizer (null), or it has no such
// token.
std::optional<std::string> token_text(const Tokenizer* tokenizer, int64_t token);

}  // namespace ballast::tokenizer
