// SPDX-License-Identifier: Apache-2.0
// config.json and model.safetensors: a model of Hugging Face's.
#include "ballast/exchange/import.h"
#include "ballast/system/checksum.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto files = fuzz::files_of(fuzz::text_of(data, size), 2);
  fuzz::write_file(exchange::kConfigFile, files[0]);
  fuzz::write_file(exchange::kWeightsFile, files[1]);
  fuzz::expect_answer([&] {
    exchange::is_hf_folder(fuzz::scratch_folder());
    const exchange::ImportedModel model(fuzz::scratch_folder());
    for (const checkpoint::TensorView& tensor : model.tensors()) checksum(tensor.data);
  });
  return 0;
}
