// SPDX-License-Identifier: Apache-2.0
// index.json of a data set without its checksum, which is added here, so that what stands behind it
// is reached.
#include "ballast/system/checksum.h"
#include "ballast/tokens/token_dataset.h"
#include "tests/fuzz/input_files.h"

namespace ballast::fuzz {
namespace {

// The text with its checksum as the last key.
std::string with_checksum(std::string_view text) {
  const size_t brace = text.rfind('}');
  if (brace == std::string_view::npos) return std::string(text);
  const std::string_view covered = text.substr(0, brace);
  return std::string(covered) + ",\n  \"checksum\": \"" + checksum_hex(checksum(covered)) +
         "\"\n}\n";
}

}  // namespace
}  // namespace ballast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const std::string text = fuzz::with_checksum(fuzz::text_of(data, size));
  fuzz::write_file("index.json", text);
  fuzz::expect_answer([&] {
    const auto index = tokens::DatasetIndex::from_text(text, "index.json");
    const std::string written = index.to_text();
    fuzz::require(tokens::DatasetIndex::from_text(written, "index.json").to_text() == written,
                  "what is written is read again");
    const tokens::TokenDataset dataset(fuzz::scratch_folder());
    for (const auto& [name, split] : index.splits) dataset.open(name);
  });
  return 0;
}
