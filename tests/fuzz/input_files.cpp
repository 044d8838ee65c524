// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/input_files.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "ballast/system/file.h"

namespace ballast::fuzz {

std::vector<std::string_view> files_of(std::string_view input, size_t count) {
  std::vector<std::string_view> files(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t end = i + 1 < count ? input.find(kCut) : input.size();
    files[i] = input.substr(0, end);
    if (end == std::string_view::npos) break;
    input.remove_prefix(i + 1 < count ? end + kCut.size() : end);
  }
  return files;
}

const std::filesystem::path& scratch_folder() {
  static const TemporaryFolder kFolder;
  return kFolder.path();
}

std::filesystem::path write_file(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = scratch_folder() / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  require(!file.fail(), "the scratch folder takes a file");
  return path;
}

void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "fuzz: a promise was broken: %s\n", promise);
  std::abort();
}

}  // namespace ballast::fuzz
