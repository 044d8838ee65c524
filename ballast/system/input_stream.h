// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace ballast {

// The bytes of a file, a pipe or a device, read once from start to end. Throws UserError naming it,
// also when a StopSignal is asked to stop while a pipe has nothing to give.
class InputStream {
 public:
  explicit InputStream(const std::filesystem::path& path);  // "-": standard input
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  const std::string& name() const { return name_; }
  // A file that can be opened again, by its name.
  bool is_named_file() const { return is_named_file_; }
  // Fills `buffer` from its start; returns fewer bytes than it holds only at the end.
  size_t read(std::span<char> buffer);

 private:
  std::string name_;
  int descriptor_ = -1;
  bool is_named_file_ = false;
};

}  // namespace ballast
