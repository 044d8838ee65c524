// SPDX-License-Identifier: Apache-2.0
// experiment.json.
#include "ballast/record/experiment_file.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto path = fuzz::write_file("experiment.json", fuzz::text_of(data, size));
  fuzz::expect_answer([&] {
    const record::Experiment experiment = record::load_experiment(path);
    const auto copy = fuzz::scratch_folder() / "copy.json";
    record::save_experiment(copy, experiment);
    fuzz::require(record::differences(experiment, record::load_experiment(copy)).empty(),
                  "what is written is read again");
  });
  return 0;
}
