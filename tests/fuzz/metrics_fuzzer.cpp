// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl.
#include "ballast/record/metrics_file.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto path = fuzz::write_file("metrics.jsonl", fuzz::text_of(data, size));
  const record::Metrics metrics = record::read_metrics(path);  // no content is an error
  record::loss_at(metrics.validations, 1000);
  return 0;
}
