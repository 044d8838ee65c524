// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/tokenizer_files.h"

namespace ballast::exchange {

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer.json", kTokenizerConfig, "special_tokens_map.json"}) {
    if (fs::exists(from / name)) write_text_atomically(to / name, read_text(from / name));
  }
}

}  // namespace ballast::exchange
