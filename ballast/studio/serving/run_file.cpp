// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/run_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ballast::serving {
namespace {

FileMark mark_of(const struct stat& status) {
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
          status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec};
}

}  // namespace

std::optional<FileMark> mark_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return mark_of(status);
}

RunFile::RunFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
  struct stat status {};
  if (descriptor_ < 0) return;
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
    mark_ = mark_of(status);
  } else {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

RunFile::~RunFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string RunFile::read(uint64_t offset, uint64_t size) const {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace ballast::serving
