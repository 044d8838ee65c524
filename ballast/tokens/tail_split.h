// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "ballast/tokens/token_dataset.h"

namespace ballast::tokens {

struct TailSplit {
  SplitIndex train, valid;
};

// Makes the last `fraction` of a written train split's tokens the valid split, for inputs of few
// documents. The cut is moved to the next line where one begins soon; a document that is cut ends
// with end-of-text on both sides. Files of `train` in `folder` are rewritten, moved or removed.
// Where there is too little text for two splits, `valid` comes back without shards.
TailSplit split_off_tail(const std::filesystem::path& folder, SplitIndex train,
                         const tokenizer::Tokenizer& tokenizer, double fraction,
                         uint64_t shard_tokens);

}  // namespace ballast::tokens
