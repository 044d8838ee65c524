// SPDX-License-Identifier: Apache-2.0
// manifest.json without its checksum, and weights.safetensors: a checkpoint's folder. The checksum
// is added here, so that what stands behind it is reached; the text as it is must be refused.
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/system/checksum.h"
#include "tests/fuzz/input_files.h"

namespace ballast::fuzz {
namespace {

constexpr std::string_view kKey = "\"checksum\": \"", kNone = "0000000000000000";

// The text with its checksum as the first key.
std::string with_checksum(std::string_view text) {
  const size_t brace = text.find('{');
  if (brace == std::string_view::npos) return std::string(text);
  std::string whole = std::string(text.substr(0, brace + 1)) + std::string(kKey);
  const size_t place = whole.size();
  whole += std::string(kNone) + "\"," + std::string(text.substr(brace + 1));
  whole.replace(place, kNone.size(), checksum_hex(checksum(whole)));
  return whole;
}

}  // namespace
}  // namespace ballast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const auto files = fuzz::files_of(fuzz::text_of(data, size), 2);
  fuzz::expect_answer([&] { checkpoint::parse_manifest(files[0], "manifest.json"); });
  fuzz::write_file(std::string(checkpoint::kManifestName), fuzz::with_checksum(files[0]));
  fuzz::write_file("weights.safetensors", files[1]);
  fuzz::expect_answer([&] {
    checkpoint::Checkpoint opened(fuzz::scratch_folder());
    for (const checkpoint::TensorEntry& entry : opened.manifest().tensors)
      fuzz::expect_answer([&] { opened.tensor(entry.name); });
    opened.verify(1);
  });
  return 0;
}
