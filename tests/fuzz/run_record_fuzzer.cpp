// SPDX-License-Identifier: Apache-2.0
// run.json, and a run that goes on.
#include "ballast/record/run_directory.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  fuzz::write_file("run.json", fuzz::text_of(data, size));
  fuzz::expect_answer([&] {
    auto run = record::RunDirectory::open(fuzz::scratch_folder());
    run.record_start({.step = 1, .program_version = "1", .command_line = {"ballast", "train"}});
    run.record_start({});
  });
  return 0;
}
