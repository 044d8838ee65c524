// SPDX-License-Identifier: Apache-2.0
// tokenizer.json, tokenizer_config.json, and a text to encode.
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/bpe_tokenizer.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto files = fuzz::files_of(fuzz::text_of(data, size), 3);
  fuzz::expect_answer([&] {
    const tokenizer::BpeTokenizer tokenizer(tokenizer::parse_tokenizer_json(
        files[0], "tokenizer.json", {std::string(files[1]), "tokenizer_config.json"}));
    std::vector<tokenizer::TokenId> ids;
    tokenizer.encode(files[2], ids);
    tokenizer.encode_continued(files[2], ids);
    for (const tokenizer::TokenId id : ids)
      fuzz::require(id < tokenizer.vocabulary_size(), "ids are of the vocabulary");
    tokenizer.decode_text(ids);
  });
  return 0;
}
