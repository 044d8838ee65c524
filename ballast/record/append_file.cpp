// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::record {
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

std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
    lines.push_back(text.substr(0, end));
  return lines;
}

void keep_lines(const fs::path& path, const std::function<bool(std::string_view)>& keep) {
  std::error_code code;
  if (!fs::exists(path, code)) return;
  const MappedFile file(path);
  std::vector<std::string_view> kept;  // runs of whole lines, their ends included
  size_t kept_bytes = 0;
  for (const std::string_view line : whole_lines(file.text())) {
    if (!keep(line)) continue;
    const std::string_view whole(line.data(), line.size() + 1);
    kept_bytes += whole.size();
    if (!kept.empty() && kept.back().end() == whole.begin()) {
      kept.back() = {kept.back().data(), kept.back().size() + whole.size()};
    } else {
      kept.push_back(whole);
    }
  }
  if (kept_bytes == file.text().size()) return;
  replace_file(path, [&](OutputFile& out) {
    for (const std::string_view lines : kept) out.write(lines);
  });
}

}  // namespace ballast::record
