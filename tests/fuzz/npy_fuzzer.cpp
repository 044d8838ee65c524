// SPDX-License-Identifier: Apache-2.0
// A numpy array: scores, prices, and choices of experts.
#include "ballast/studio/scores/score_files.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto path = fuzz::write_file("scores.npy", fuzz::text_of(data, size));
  fuzz::expect_answer([&] { scores::read_scores(path.string()); });
  fuzz::expect_answer([&] { scores::read_whole_numbers(path); });
  return 0;
}
