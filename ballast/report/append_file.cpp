// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ballast/system/error.h"

namespace ballast {
AppendFile::AppendFile(const fs::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_with_errno("open", path);
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view record) {
  const off_t start = ::lseek(fd_, 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t n = ::write(fd_, record.data(), record.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      // If this fails too, the torn record is removed when the log is next opened.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, start);
      errno = code;
      fail_with_errno("write", path_);
    }
    record.remove_prefix(static_cast<size_t>(n));
  }
}

void AppendFile::sync() {
  if (::fsync(fd_) != 0) fail_with_errno("write", path_);
}

void keep_lines(const fs::path& path, const std::function<bool(std::string_view)>& keep) {
  std::error_code code;
  if (!fs::exists(path, code)) return;
  const MappedFile file(path);
  std::vector<std::string_view> kept;  // runs of whole lines, their ends included
  size_t kept_bytes = 0;
  std::string_view rest = file.text();
  for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    if (!keep(rest.substr(0, end))) continue;
    kept_bytes += end + 1;
    if (!kept.empty() && kept.back().end() == rest.begin()) {
      kept.back() = {kept.back().data(), kept.back().size() + end + 1};
    } else {
      kept.push_back(rest.substr(0, end + 1));
    }
  }
  if (kept_bytes == file.text().size()) return;
  replace_file(path, [&](OutputFile& out) {
    for (const std::string_view lines : kept) out.write(lines);
  });
}

}  // namespace ballast
