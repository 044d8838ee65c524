// SPDX-License-Identifier: Apache-2.0
// validation.json.
#include "ballast/record/validation_file.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto path = fuzz::write_file("validation.json", fuzz::text_of(data, size));
  fuzz::expect_answer([&] {
    const record::LastValidation validation = record::read_validation(path);
    validation.main();
    const auto copy = fuzz::scratch_folder() / "copy.json";
    record::write_validation(copy, validation);
    record::read_validation(copy);
  });
  return 0;
}
