// SPDX-License-Identifier: Apache-2.0
// Other programs' tokens: a .bin alone (llm.c, nanoGPT), or with its .idx (Megatron, fairseq).
#include "ballast/tokens/token_source.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto files = fuzz::files_of(fuzz::text_of(data, size), 2);
  const auto path = fuzz::write_file("train.bin", files[0]);
  const auto index = fuzz::scratch_folder() / "train.idx";
  if (files[1].empty()) {
    std::filesystem::remove(index);
  } else {
    fuzz::write_file("train.idx", files[1]);
  }
  fuzz::expect_answer([&] {
    const auto source = tokens::open_token_source(path);
    source->fingerprint();
    std::vector<int64_t> ids(source->size());
    source->read(0, ids);
    source->limit_vocabulary(50'000);
    source->read(0, ids);
  });
  fuzz::expect_answer([&] { tokens::open_token_source(fuzz::scratch_folder()); });
  return 0;
}
