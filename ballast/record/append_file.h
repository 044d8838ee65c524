// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::record {

// A file that grows by whole records: each is handed to the system when append() returns, so that
// it outlives this process. Throws UserError naming the file.
class AppendFile {
 public:
  explicit AppendFile(const fs::path& path);  // created if missing
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);  // on failure (a full disk) no part of it stays
  void sync();                           // all of it outlives a power failure too

 private:
  fs::path path_;
  int fd_ = -1;
};

// The lines of such a file, without their ends; not a last one that has none.
std::vector<std::string_view> whole_lines(std::string_view text);

// Removes, atomically, the lines (given without their end) for which `keep` is false, and a last
// line without an end, which a crash has torn. A missing file stays missing.
void keep_lines(const fs::path& path, const std::function<bool(std::string_view)>& keep);

}  // namespace ballast::record
