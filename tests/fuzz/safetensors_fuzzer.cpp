// SPDX-License-Identifier: Apache-2.0
// A safetensors file, as weights and as scores.
#include "ballast/checkpoint/safetensors.h"
#include "ballast/studio/scores/score_files.h"
#include "ballast/system/checksum.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto path = fuzz::write_file("weights.safetensors", fuzz::text_of(data, size));
  fuzz::expect_answer([&] {
    const checkpoint::SafetensorsFile file(path);
    for (const checkpoint::TensorView& tensor : file.tensors()) {
      fuzz::require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
      checksum(tensor.data);  // reads every byte
    }
    scores::read_scores(path.string());
  });
  return 0;
}
