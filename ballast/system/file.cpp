// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/input_stream.h"
#include "ballast/system/mapped_ranges.h"

namespace ballast {
namespace {

constexpr size_t kWriteBuffer = 1 << 20;
constexpr size_t kPipeBuffer = 64 << 10;  // what a pipe holds

void write_fully(int fd, const char* data, size_t size, const fs::path& path) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("write", path);
    data += n;
    size -= static_cast<size_t>(n);
  }
}

// A new file: what has its name is removed, and no link is followed. -1 and errno where it cannot
// be.
int create_file(const fs::path& path) {
  constexpr int kAttempts = 16;  // others may make it again meanwhile
  for (int attempt = 1;; ++attempt) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0 || errno != EEXIST || attempt == kAttempts) return fd;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return -1;
  }
}

bool is_same_file(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

void fail_with_errno(const char* what, const fs::path& path) {
  const int code = errno;
  fail("cannot {} {}: {}{}", what, path.string(), std::strerror(code),
       code == ENOSPC || code == EDQUOT ? " (free some space, or write to another disk)"
       : code == EFBIG ? " (the largest a file may be is limited here: see `ulimit -f`)"
                       : "");
}

MappedFile::MappedFile(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_with_errno("open", path);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || S_ISDIR(status.st_mode)) {
    ::close(fd);
    if (S_ISDIR(status.st_mode)) errno = EISDIR;
    fail_with_errno("read", path);
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) {
      ::close(fd);
      fail_with_errno("map", path);
    }
    data_ = static_cast<const std::byte*>(address);
    remember_mapping(data_, size_, path);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::drop(size_t offset, size_t size) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + size, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

OutputFile::OutputFile(const fs::path& path) : OutputFile(path, create_file(path)) {}

OutputFile::OutputFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {
  if (fd_ < 0) fail_with_errno("create", path_);
}

OutputFile OutputFile::temporary_for(const fs::path& path) {
  constexpr int kNames = 10;
  for (int i = 0;; ++i) {
    fs::path name = path;
    name += i == 0 ? ".tmp" : ".tmp" + std::to_string(i);
    const int fd = create_file(name);
    // A folder, or a file that is not ours to remove, has the name: it must not stop us for ever.
    if (fd < 0 && (errno == EISDIR || errno == EPERM) && i + 1 < kNames) continue;
    return {std::move(name), fd};
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      buffer_(std::move(other.buffer_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void OutputFile::write(std::string_view text) {
  size_ += text.size();
  if (buffer_.size() + text.size() > kWriteBuffer) flush();
  if (text.size() >= kWriteBuffer) {
    write_fully(fd_, text.data(), text.size(), path_);
  } else {
    buffer_.append(text);  // grows as it must: most files are small
  }
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  flush();
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void OutputFile::flush() {
  write_fully(fd_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void OutputFile::finish() {
  flush();
  if (::fsync(fd_) != 0) fail_with_errno("write", path_);
  if (!is_same_file(fd_, path_))
    fail("cannot write {}: another process has removed or replaced it", path_.string());
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail_with_errno("close", path_);
}

namespace {

// What has no size to map: a pipe, a device, a file of /proc.
std::string read_stream(const fs::path& path) {
  InputStream stream(path);
  std::string text, piece(kPipeBuffer, '\0');
  for (size_t size; (size = stream.read(piece)) > 0;) text.append(piece, 0, size);
  return text;
}

}  // namespace

std::string read_text(const fs::path& path) {
  struct stat status {};
  const bool is_sized = ::stat(path.c_str(), &status) != 0 || status.st_size > 0;
  return is_sized ? std::string(MappedFile(path).text()) : read_stream(path);
}

void replace_file(const fs::path& path, const std::function<void(OutputFile&)>& write) {
  OutputFile file = OutputFile::temporary_for(path);
  try {
    write(file);
    file.finish();
    if (::rename(file.path().c_str(), path.c_str()) != 0) fail_with_errno("rename", file.path());
  } catch (...) {
    ::unlink(file.path().c_str());
    throw;
  }
  sync_folder(path.parent_path().empty() ? "." : path.parent_path());
}

void write_text_atomically(const fs::path& path, std::string_view text) {
  replace_file(path, [&](OutputFile& file) { file.write(text); });
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_with_errno("open", folder);
  ::fsync(fd);  // some network file systems refuse to sync a folder; the rename is still atomic
  ::close(fd);
}

void make_folder(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) fail("cannot create folder {}: {}", folder.string(), code.message());
}

void make_own_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) return;
  if (errno == EEXIST && !fs::is_directory(fs::symlink_status(folder))) {
    ::unlink(folder.c_str());
    if (::mkdir(folder.c_str(), 0777) == 0) return;
    fail_with_errno("create folder", folder);
  }
  if (errno != EEXIST) fail_with_errno("create folder", folder);
}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
  std::string name = (parent / ".ballast-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail_with_errno("create a folder in", parent);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

FileLock::FileLock(const fs::path& path, std::string_view what) {
  const auto open = [&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  };
  fd_ = open();
  if (fd_ < 0 && errno == ELOOP && ::unlink(path.c_str()) == 0) fd_ = open();
  if (fd_ < 0) fail_with_errno("open", path);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t n = ::pread(fd_, holder, sizeof(holder) - 1, 0);
    ::close(fd_);
    fail("{} is already in use by process {} (lock {}): wait for it, stop it, or choose another",
         what, n > 0 ? holder : "?", path.string());
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, pid.data(), pid.size(), 0) < 0) {
    fail_with_errno("write", path);
  }
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace ballast
