// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ballast {

// UserError "cannot WHAT PATH: " and what errno says. For system calls that the classes here do not
// make.
[[noreturn]] void fail_with_errno(const char* what, const std::filesystem::path& path);

namespace fs = std::filesystem;

// All functions here throw UserError naming the file and the system's reason.

// A whole file, mapped read-only. An empty file is an empty span.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // Tells the kernel that [offset, offset + size) is not needed again soon, so that resident memory
  // stays small while a large file is read once.
  void drop(size_t offset, size_t size) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A new file being written from start to end. Nothing is on disk for sure before finish().
class OutputFile {
 public:
  // A file or link that has the name already is removed: neither is ever written to.
  explicit OutputFile(const fs::path& path);
  ~OutputFile();  // closes; does not report errors
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Overwrites bytes already written, e.g. a header once its numbers are known.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }
  const fs::path& path() const { return path_; }
  int descriptor() const { return fd_; }  // for a child process to write to
  // Flushes, syncs and closes. Throws if another file took its name meanwhile.
  void finish();

 private:
  friend void replace_file(const fs::path&, const std::function<void(OutputFile&)>&);
  OutputFile(fs::path path, int fd);
  static OutputFile temporary_for(const fs::path& path);
  void flush();
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string buffer_;
};

std::string read_text(const fs::path& path);
// Writes a file so that readers see the old content or the new one, never a part: temporary file
// (PATH.tmp; where a folder has that name, PATH.tmp1 and so on), fsync, rename. On failure the
// temporary file is removed and the old content stays.
void replace_file(const fs::path& path, const std::function<void(OutputFile&)>& write);
void write_text_atomically(const fs::path& path, std::string_view text);
// Makes renames and new files in `folder` durable.
void sync_folder(const fs::path& folder);
// Creates the folder and its parents where missing.
void make_folder(const fs::path& folder);
// Creates a folder whose parent is there, for files of ours alone. One that is there already will
// do; a file or link of that name is removed, so that nothing is written, or deleted, elsewhere.
void make_own_folder(const fs::path& folder);

// A new folder of its own, deleted with everything in it at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent = fs::temp_directory_path());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A lock file held by this process until destruction (or death): `path` is created if missing; a
// link of that name is removed, since the file it leads to is not ours to write to.
// Throws UserError saying which process holds it ("run directory already in use").
class FileLock {
 public:
  FileLock(const fs::path& path, std::string_view what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace ballast
