// SPDX-License-Identifier: Apache-2.0
// One file of tokens. The checksums in its header are made to fit here, so that what stands behind
// them is reached.
#include <cstring>

#include "ballast/system/checksum.h"
#include "ballast/tokens/token_shard.h"
#include "tests/fuzz/input_files.h"

namespace ballast::fuzz {
namespace {

constexpr size_t kHeaderBytes = 80, kContentSum = 64, kHeaderSum = 72;  // docs/file_formats.md

std::string with_checksums(std::string_view bytes) {
  std::string file(bytes);
  if (file.size() < kHeaderBytes) return file;
  const uint64_t content = checksum(std::string_view(file).substr(kHeaderBytes));
  std::memcpy(file.data() + kContentSum, &content, sizeof(content));
  const uint64_t header = checksum(std::string_view(file).substr(0, kHeaderSum));
  std::memcpy(file.data() + kHeaderSum, &header, sizeof(header));
  return file;
}

}  // namespace
}  // namespace ballast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const std::string bytes = fuzz::with_checksums(fuzz::text_of(data, size));
  const auto path = fuzz::write_file("a.tokens", bytes);
  fuzz::expect_answer([&] {
    const tokens::TokenShard shard(path);
    const auto source = shard.tokens({"one", "two"});
    std::vector<int64_t> ids(source->size());
    std::vector<int32_t> domains(source->size());
    fuzz::expect_answer([&] { source->read(0, ids); });
    fuzz::expect_answer([&] { source->read_domains(0, domains); });
    const size_t half = domains.size() / 2;
    fuzz::expect_answer([&] { source->read_domains(half, std::span(domains).first(half)); });
    source->fingerprint();
    shard.verify();
  });
  return 0;
}
