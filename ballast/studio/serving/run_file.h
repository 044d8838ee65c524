// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ballast::serving {

// Which file it is and how far it has come; two that are equal need not be read again.
struct FileMark {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t size = 0;
  int64_t changed_ns = 0;  // when it was last written to, since 1970

  bool operator==(const FileMark&) const = default;
  bool is_same_file(const FileMark& other) const {
    return device == other.device && inode == other.inode;
  }
};

// Of what has this name itself, never of what a link leads to. Nothing: it is not there.
std::optional<FileMark> mark_of(const std::filesystem::path& path);

// A file of a run, to look at while somebody writes it. Nothing is locked, and nothing waits: only
// plain files are opened. A link or a pipe in the folder of a run, which may be somebody else's,
// counts as missing.
class RunFile {
 public:
  explicit RunFile(const std::filesystem::path& path);
  ~RunFile();
  RunFile(const RunFile&) = delete;
  RunFile& operator=(const RunFile&) = delete;

  bool is_there() const { return descriptor_ >= 0; }
  const FileMark& mark() const { return mark_; }  // when it was opened
  // Up to `size` bytes from there: fewer at the file's end, or where it cannot be read.
  std::string read(uint64_t offset, uint64_t size) const;

 private:
  int descriptor_ = -1;
  FileMark mark_;
};

}  // namespace ballast::serving
