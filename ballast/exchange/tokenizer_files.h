// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/system/file.h"

namespace ballast::exchange {

// Those that transformers loads a tokenizer from: tokenizer.json, and what belongs to it. Copies
// what is there of them.
void copy_tokenizer_files(const fs::path& from, const fs::path& to);

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

}  // namespace ballast::exchange
