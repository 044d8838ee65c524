// SPDX-License-Identifier: Apache-2.0
// vocab.json, merges.txt, and a text to encode.
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/bpe_tokenizer.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto files = fuzz::files_of(fuzz::text_of(data, size), 3);
  const auto vocab = fuzz::write_file("vocab.json", files[0]);
  const auto merges = fuzz::write_file("merges.txt", files[1]);
  fuzz::expect_answer([&] {
    const tokenizer::BpeTokenizer tokenizer(tokenizer::read_vocab_and_merges(vocab, merges));
    std::vector<tokenizer::TokenId> ids;
    tokenizer.encode(files[2], ids);
    fuzz::require(tokenizer.decode_text(ids) == files[2], "byte-level BPE gives every text back");
  });
  return 0;
}
