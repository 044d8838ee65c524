// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/input_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ballast/system/error.h"
#include "ballast/system/stop_signal.h"

namespace ballast {

InputStream::InputStream(const std::filesystem::path& path)
    : name_(path == "-" ? "standard input" : path.string()) {
  // Not to wait where a FIFO has no writer yet: read() waits, and can be stopped.
  descriptor_ = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                            : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail("cannot open {}: {}", name_, std::strerror(errno));
  struct stat status = {};
  is_named_file_ = path != "-" && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);  // advice only: pipes refuse it
}

InputStream::~InputStream() { ::close(descriptor_); }

size_t InputStream::read(std::span<char> buffer) {
  size_t filled = 0;
  while (filled < buffer.size()) {
    if (!is_named_file_ && !wait_for_input(descriptor_)) fail("stopped while reading {}", name_);
    const ssize_t n = ::read(descriptor_, buffer.data() + filled, buffer.size() - filled);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail("cannot read {}: {}", name_, std::strerror(errno));
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  return filled;
}

}  // namespace ballast
