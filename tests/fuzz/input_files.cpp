// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/input_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

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
  // Without a stream and its buffer: this is done for every input.
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const ssize_t written = ::write(file, bytes.data(), bytes.size());
  ::close(file);
  require(written == static_cast<ssize_t>(bytes.size()), "the scratch folder takes a file");
  return path;
}

void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "fuzz: a promise was broken: %s\n", promise);
  std::abort();
}

}  // namespace ballast::fuzz
